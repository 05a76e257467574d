#include "lode/prepared/export_folder.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/json/json.h"
#include "lode/prepared/out_folder.h"
#include "lode/prepared/source_stamp.h"

namespace lode::prepared {
namespace {

constexpr std::uint64_t kMostDescriptionBytes = 16 * kMiB;
constexpr std::string_view kPart = ".part";

// "model-DIGITS-of-DIGITS.safetensors", whole or not.
bool is_data_file(std::string_view name) {
  if (name.ends_with(kPart)) name.remove_suffix(kPart.size());
  const auto skip = [&](std::string_view word) {
    const bool begins = name.starts_with(word);
    if (begins) name.remove_prefix(word.size());
    return begins;
  };
  const auto skip_digits = [&] {
    const std::size_t count = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(count);
    return count >= 5;
  };
  return skip("model-") && skip_digits() && skip("-of-") && skip_digits() && name == ".safetensors";
}

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Error not_ours(const std::filesystem::path& out, std::string_view found) {
  return Error{.code = Code::kUsage,
               .thing = out.string(),
               .wanted = "a folder that is empty or not there yet, or one with an export in it",
               .found = fmt::format("\"{}\" and no {}", found, kExportFile)};
}

Error of_another(const std::filesystem::path& out) {
  return Error{.code = Code::kUsage,
               .thing = out.string(),
               .wanted = "a folder for this checkpoint and these settings",
               .found = fmt::format("an export of others: {} says of what", kExportFile),
               .hint = "name another folder, or --force to export into this one again"};
}

bool has_text(const std::filesystem::path& path, const std::string& text) {
  const auto there = checkpoint::read_small_file(path, text.size());
  return there && *there && **there == text;
}

bool is_whole(io::SystemCalls& calls, const std::filesystem::path& out,
              const ExportContent& content) {
  for (std::size_t i = 0; i < content.file_bytes.size(); ++i) {
    io::FileStatus file;
    const auto path = out / export_file_name(i, content.file_bytes.size());
    if (calls.status_of(path.string(), file) < 0 || file.bytes != content.file_bytes[i]) {
      return false;
    }
  }
  return has_text(out / kExportIndexFile, content.index);
}

// The index first: without it nothing passes for an export that is finished.
Status clear(io::SystemCalls& calls, const std::filesystem::path& out) {
  LODE_TRY(const std::vector<std::string> names, names_in(out));
  const std::string index_part = std::string(kExportIndexFile) + std::string(kPart);
  if (holds(names, kExportIndexFile)) {
    LODE_TRY_STATUS(remove_file(calls, (out / kExportIndexFile).string()));
    LODE_TRY_STATUS(sync_folder(calls, out.string()));
  }
  for (const std::string& name : names) {
    if (!is_data_file(name) && name != index_part) continue;
    LODE_TRY_STATUS(remove_file(calls, (out / name).string()));
  }
  return {};
}

}  // namespace

std::string export_file_name(std::size_t idx, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", idx + 1, count);
}

Result<std::string> describe_export(const Input& input) {
  LODE_TRY(const std::vector<SourceShard> stamps, stamp_sources(input.index));
  json::Array sources;
  for (const SourceShard& stamp : stamps) {
    sources.push_back(json::object({{"name", stamp.name},
                                    {"bytes", stamp.bytes},
                                    {"header_sha256", io::to_hex(stamp.header_sha256)}}));
  }
  json::Object members{
      {"lode_export", 1}, {"target", targets::name(input.choice.target)}, {"family", input.family}};
  const targets::Options& options = input.choice.options;
  if (!options.online.empty()) members.emplace_back("online", options.online);
  members.emplace_back("flashinfer", options.flashinfer);
  members.emplace_back("fp8_activations", options.fp8_activations);
  if (!input.choice.experts.empty()) {  // else all of them
    json::Array experts;
    for (const std::uint32_t expert : input.choice.experts) {
      experts.emplace_back(std::uint64_t{expert});
    }
    members.emplace_back("experts", json::Value(std::move(experts)));
  }
  members.emplace_back("sources", json::Value(std::move(sources)));
  return json::dump(json::Value(std::move(members)), 2) + "\n";
}

Result<ExportState> look_at_export(io::SystemCalls& calls, const std::filesystem::path& out,
                                   const ExportContent& content, bool force) {
  LODE_TRY(const std::vector<std::string> names, names_in(out));
  ExportState state;
  if (names.empty()) return state;
  if (!holds(names, kExportFile)) return not_ours(out, names.front());
  if (!force) {
    LODE_TRY(const std::optional<std::string> there,
             checkpoint::read_small_file(out / kExportFile, kMostDescriptionBytes));
    // One that was stopped while it wrote the description has its beginning.
    if (!there || !content.description.starts_with(*there)) return of_another(out);
    state.is_finished =
        there->size() == content.description.size() && is_whole(calls, out, content);
    if (state.is_finished) return state;
  }
  for (const std::string& name : names) {
    io::FileStatus file;
    if (!is_data_file(name) || calls.status_of((out / name).string(), file) < 0) continue;
    state.leftover_disk_bytes += file.disk_bytes;
  }
  return state;
}

Result<OutputFile> take_export(io::SystemCalls& calls, const std::filesystem::path& out,
                               const ExportContent& content, bool force) {
  LODE_TRY(const ExportState before, look_at_export(calls, out, content, force));
  static_cast<void>(before);
  LODE_TRY_STATUS(make_folder(calls, out.string()));
  LODE_TRY(OutputFile file,
           OutputFile::open(calls, (out / kExportFile).string(), OutputFile::Way::kBuffered));
  LODE_TRY_STATUS(file.lock());
  LODE_TRY(const ExportState state, look_at_export(calls, out, content, force));
  std::error_code fault;
  if (state.is_finished || !std::filesystem::exists(out / kExportFile, fault)) {
    return Error{.code = Code::kIo,
                 .thing = out.string(),
                 .wanted = "the folder that was looked at",
                 .found = "another lode prepare has been at work there since",
                 .hint = "call again"};
  }
  LODE_TRY_STATUS(clear(calls, out));
  LODE_TRY_STATUS(file.truncate(0));
  LODE_TRY_STATUS(file.write(std::as_bytes(std::span(content.description)), 0));
  LODE_TRY_STATUS(file.sync_data());
  LODE_TRY_STATUS(sync_folder(calls, out.string()));
  return file;
}

void drop_export(io::SystemCalls& calls, const std::filesystem::path& out) {
  static_cast<void>(clear(calls, out));
  const auto names = names_in(out);
  if (!names || names->size() != 1 || names->front() != kExportFile) return;
  static_cast<void>(remove_file(calls, (out / kExportFile).string()));
}

}  // namespace lode::prepared
