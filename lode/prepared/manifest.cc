#include "lode/prepared/manifest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/json/json.h"
#include "lode/kernels/panel.h"
#include "lode/layout/expert_record.h"
#include "lode/prepared/format.h"

namespace lode::prepared {
namespace {

constexpr std::string_view kFormatName = "lode-prepared";
constexpr std::string_view kSumMember = "manifest_crc32c";
constexpr std::string_view kAgain = "prepare the checkpoint again: lode prepare DIR OUT";

Error invalid(std::string_view member, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = fmt::format("{}: {}", kManifestFile, member),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .hint = "the prepared checkpoint is damaged: prepare it again"};
}

std::uint64_t sum_of(const json::Object& members) {
  const std::string text = json::dump(json::Value(members));
  return io::crc32c(std::as_bytes(std::span(text)));
}

json::Value layout_json(const LayoutId& layout) {
  return json::object({{"kernel_family", layout.kernel_family},
                       {"version", std::int64_t{layout.version}},
                       {"panel_rows", std::int64_t{layout.panel_rows}},
                       {"super_block_k", std::int64_t{layout.super_block_k}},
                       {"line_bytes", std::int64_t{layout.line_bytes}},
                       {"record_alignment_bytes", std::int64_t{layout.record_alignment_bytes}},
                       {"gate_up", layout.gate_up}});
}

json::Value source_json(const SourceShard& source) {
  return json::object({{"name", source.name},
                       {"bytes", source.bytes},
                       {"mtime_ns", source.mtime_ns},
                       {"header_sha256", io::to_hex(source.header_sha256)}});
}

json::Value companion_json(const Companion& companion) {
  return json::object({{"name", companion.name},
                       {"bytes", companion.bytes},
                       {"sha256", io::to_hex(companion.sha256)}});
}

template <class T, class AsJson>
json::Value list_json(const std::vector<T>& list, AsJson as_json) {
  json::Array array;
  for (const T& value : list) array.push_back(as_json(value));
  return json::Value(std::move(array));
}

// Takes members out of one object; the first fault stays.
class Members {
 public:
  explicit Members(const json::Value& value) : value_(value) {}

  std::string text(std::string_view name) {
    const json::Value* const member = value_.find(name);
    if (member != nullptr && member->as_string() != nullptr) return *member->as_string();
    fault(name, "a string", member);
    return "";
  }
  std::uint64_t number(std::string_view name,
                       std::uint64_t most = std::numeric_limits<std::int64_t>::max()) {
    const json::Value* const member = value_.find(name);
    const std::int64_t* const number = member == nullptr ? nullptr : member->as_int();
    if (number != nullptr && *number >= 0 && static_cast<std::uint64_t>(*number) <= most) {
      return static_cast<std::uint64_t>(*number);
    }
    fault(name, fmt::format("a whole number up to {}", most), member);
    return 0;
  }
  std::uint32_t small(std::string_view name) {
    return static_cast<std::uint32_t>(number(name, std::numeric_limits<std::uint32_t>::max()));
  }
  std::int64_t signed_number(std::string_view name) {
    const json::Value* const member = value_.find(name);
    if (member != nullptr && member->as_int() != nullptr) return *member->as_int();
    fault(name, "a whole number", member);
    return 0;
  }
  io::Sha256::Digest digest(std::string_view name) {
    const auto digest = io::digest_from_hex(text(name));
    if (!digest) fault(name, "64 hex digits", value_.find(name));
    return digest.value_or(io::Sha256::Digest{});
  }
  /// A name that cannot lead out of the folder.
  std::string file_name(std::string_view name) {
    std::string value = text(name);
    if (!checkpoint::is_plain_basename(value)) fault(name, "a plain name", value_.find(name));
    return value;
  }
  json::Array list(std::string_view name) {
    const json::Value* const member = value_.find(name);
    if (member != nullptr && member->as_array() != nullptr) return *member->as_array();
    fault(name, "a list", member);
    return {};
  }
  /// Errors: kInvalidSource for the first member that was not as it should be.
  Status status() const {
    if (fault_) return *fault_;
    return {};
  }

 private:
  void fault(std::string_view name, std::string wanted, const json::Value* member) {
    if (fault_) return;
    fault_ = invalid(name, std::move(wanted),
                     member == nullptr ? "nothing" : std::string(member->kind()));
  }

  const json::Value& value_;
  std::optional<Error> fault_;
};

Result<LayoutId> read_layout(const json::Value& value) {
  Members members(value);
  LayoutId layout;
  layout.kernel_family = members.text("kernel_family");
  layout.version = members.small("version");
  layout.panel_rows = members.small("panel_rows");
  layout.super_block_k = members.small("super_block_k");
  layout.line_bytes = members.small("line_bytes");
  layout.record_alignment_bytes = members.small("record_alignment_bytes");
  layout.gate_up = members.text("gate_up");
  LODE_TRY_STATUS(members.status());
  return layout;
}

Status read_lists(Members& members, Manifest& manifest) {
  for (const json::Value& value : members.list("sources")) {
    Members source(value);
    manifest.sources.push_back({source.file_name("name"), source.number("bytes"),
                                source.signed_number("mtime_ns"), source.digest("header_sha256")});
    LODE_TRY_STATUS(source.status());
  }
  for (const json::Value& value : members.list("companions")) {
    Members companion(value);
    manifest.companions.push_back(
        {companion.file_name("name"), companion.number("bytes"), companion.digest("sha256")});
    LODE_TRY_STATUS(companion.status());
  }
  for (const json::Value& value : members.list("data_files")) {
    Members file(value);
    const std::string name = file.file_name("name");
    const std::string wanted = data_file_name(manifest.data_file_bytes.size());
    manifest.data_file_bytes.push_back(file.number("bytes"));
    LODE_TRY_STATUS(file.status());
    if (name != wanted) return invalid("data_files", wanted, name);
  }
  return {};
}

Status check_sum(const json::Value& value) {
  json::Object members = *value.as_object();
  const json::Value* const sum = value.find(kSumMember);
  std::erase_if(members, [](const json::Member& member) { return member.first == kSumMember; });
  const std::int64_t* const number = sum == nullptr ? nullptr : sum->as_int();
  if (number != nullptr && static_cast<std::uint64_t>(*number) == sum_of(members)) return {};
  return invalid(kSumMember, "the sum of all other members", "another");
}

Status check_version(const json::Value& value) {
  if (value.as_object() == nullptr) return invalid("", "an object", std::string(value.kind()));
  const json::Value* const format = value.find("format");
  if (format == nullptr || format->as_string() == nullptr || *format->as_string() != kFormatName) {
    return invalid("format", fmt::format("\"{}\"", kFormatName), "something else");
  }
  const json::Value* const version = value.find("format_version");
  const bool whole = version != nullptr && version->as_int() != nullptr;
  if (whole && *version->as_int() == kFormatVersion) return {};
  return Error{.code = whole ? Code::kLayoutMismatch : Code::kInvalidSource,
               .thing = fmt::format("{}: format_version", kManifestFile),
               .wanted = fmt::format("{}", kFormatVersion),
               .found = whole ? fmt::format("{}", *version->as_int()) : "no whole number",
               .hint = std::string(kAgain)};
}

Error another_layout(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kLayoutMismatch,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .where = std::string(kManifestFile),
          .hint = std::string(kAgain)};
}

}  // namespace

LayoutId cpu_layout() {
  return {.kernel_family = "panels",
          .version = 1,
          .panel_rows = kernels::kPanelRows,
          .super_block_k = kernels::kSuperBlockK,
          .line_bytes = kernels::kLineBytes,
          .record_alignment_bytes = static_cast<std::uint32_t>(layout::kRecordAlignment),
          .gate_up = "alternate"};
}

LayoutId engine_layout(targets::Target target) {
  return {.kernel_family = std::string(targets::name(target)), .version = 1, .gate_up = {}};
}

std::string encode(const Manifest& manifest) {
  json::Array files;
  for (std::size_t i = 0; i < manifest.data_file_bytes.size(); ++i) {
    files.push_back(
        json::object({{"name", data_file_name(i)}, {"bytes", manifest.data_file_bytes[i]}}));
  }
  const json::Value value =
      json::object({{"format", kFormatName},
                    {"format_version", std::int64_t{manifest.format_version}},
                    {"target", manifest.target},
                    {"layout", layout_json(manifest.layout)},
                    {"dense", manifest.dense},
                    {"family", manifest.family},
                    {"weight_bytes", manifest.weight_bytes},
                    {"sources", list_json(manifest.sources, source_json)},
                    {"companions", list_json(manifest.companions, companion_json)},
                    {"data_files", json::Value(std::move(files))},
                    {"index_bytes", manifest.index_bytes},
                    {"root_sha256", io::to_hex(manifest.root_sha256)}});
  json::Object members = *value.as_object();
  members.emplace_back(kSumMember, json::Value(sum_of(members)));
  return json::dump(json::Value(std::move(members)), 2) + "\n";
}

Result<Manifest> decode_manifest(std::string_view text) {
  LODE_TRY(const json::Value value, json::parse(text, {.max_bytes = kMostManifestBytes}));
  LODE_TRY_STATUS(check_version(value));
  LODE_TRY_STATUS(check_sum(value));
  Members members(value);
  Manifest manifest;
  manifest.format_version = members.small("format_version");
  manifest.target = members.text("target");
  manifest.dense = members.text("dense");
  manifest.family = members.text("family");
  manifest.weight_bytes = members.number("weight_bytes");
  manifest.index_bytes = members.number("index_bytes");
  manifest.root_sha256 = members.digest("root_sha256");
  const json::Value* const layout = value.find("layout");
  if (layout == nullptr) return invalid("layout", "an object", "nothing");
  LODE_TRY(manifest.layout, read_layout(*layout));
  LODE_TRY_STATUS(read_lists(members, manifest));
  LODE_TRY_STATUS(members.status());
  return manifest;
}

Status check_runnable(const Manifest& manifest) {
  const auto target = targets::target_by_name(manifest.target);
  if (!target) {
    return another_layout("prepared checkpoint", "a target that this version knows",
                          "target " + manifest.target);
  }
  const LayoutId known = *target == targets::Target::kCpu ? cpu_layout() : engine_layout(*target);
  if (manifest.layout == known) return {};
  return another_layout("layout of the prepared checkpoint", json::dump(layout_json(known)),
                        json::dump(layout_json(manifest.layout)));
}

}  // namespace lode::prepared
