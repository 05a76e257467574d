#include "lode/prepared/export_folder.h"

#include <algorithm>
#include <numeric>
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

namespace {

constexpr std::int64_t kExportVersion = 1;

json::Array numbers(const std::vector<std::uint32_t>& experts) {
  json::Array all;
  for (const std::uint32_t expert : experts) all.emplace_back(std::uint64_t{expert});
  return all;
}

// Of every layer that has some, as many.
std::uint64_t num_experts_of(const loader::Binding& binding) {
  std::size_t most = 0;
  for (const auto& experts : binding.experts) most = std::max(most, experts.size());
  return most;
}

Error bad_description(const std::filesystem::path& folder, std::string_view wanted,
                      std::string_view found) {
  return Error{.code = Code::kInvalidSource,
               .thing = (folder / kExportFile).string(),
               .wanted = std::string(wanted),
               .found = checkpoint::printable(found)};
}

Result<json::Value> description_of(const std::filesystem::path& folder) {
  LODE_TRY(const std::optional<std::string> text,
           checkpoint::read_small_file(folder / kExportFile, kMostDescriptionBytes));
  if (!text) return bad_description(folder, "what is exported", "nothing");
  auto value = json::parse(*text);
  if (!value) return at((folder / kExportFile).string(), std::move(value).error());
  return value;
}

std::uint64_t whole(const json::Value& object, std::string_view name, std::uint64_t otherwise) {
  const json::Value* const value = object.find(name);
  const bool there = value != nullptr && value->as_int() != nullptr && *value->as_int() >= 0;
  return there ? static_cast<std::uint64_t>(*value->as_int()) : otherwise;
}

std::string text_of(const json::Value& object, std::string_view name) {
  const json::Value* const value = object.find(name);
  return value == nullptr || value->as_string() == nullptr ? std::string() : *value->as_string();
}

std::optional<std::vector<std::uint32_t>> experts_of(const json::Value& object) {
  const json::Value* const list = object.find("experts");
  if (list == nullptr || list->as_array() == nullptr || list->as_array()->empty()) {
    return std::nullopt;
  }
  std::vector<std::uint32_t> experts;
  for (const json::Value& value : *list->as_array()) {
    const std::int64_t* const expert = value.as_int();
    constexpr auto kMost = static_cast<std::int64_t>(loader::kMostExperts);
    if (expert == nullptr || *expert < 0 || *expert >= kMost) return std::nullopt;
    experts.push_back(static_cast<std::uint32_t>(*expert));
  }
  return experts;
}

Result<loader::EngineChoice> choice_of(const std::filesystem::path& folder,
                                       const json::Value& said) {
  const std::string name = text_of(said, "target");
  const auto target = targets::target_by_name(name);
  if (whole(said, "lode_export", 0) != kExportVersion || !target) {
    return Error{.code = Code::kLayoutMismatch,
                 .thing = (folder / kExportFile).string(),
                 .wanted = fmt::format("version {} and a target of this lode", kExportVersion),
                 .found = fmt::format("version {}, target {}", whole(said, "lode_export", 0),
                                      checkpoint::printable(name)),
                 .hint = "export again with this lode"};
  }
  loader::EngineChoice choice;
  choice.target = *target;
  choice.options.online = text_of(said, "online");
  choice.options.flashinfer = text_of(said, "flashinfer");
  const json::Value* const fp8 = said.find("fp8_activations");
  choice.options.fp8_activations = fp8 != nullptr && fp8->as_bool() != nullptr && *fp8->as_bool();
  choice.ranks =
      static_cast<std::uint32_t>(std::min(whole(said, "ranks", 1), loader::kMostExperts));
  choice.rank = static_cast<std::uint32_t>(std::min(whole(said, "rank", 0), loader::kMostExperts));
  return choice;
}

}  // namespace

bool is_export(const std::filesystem::path& folder) {
  std::error_code absent;
  return std::filesystem::is_regular_file(folder / kExportFile, absent);
}

Result<ExportDescription> read_export(const std::filesystem::path& folder) {
  LODE_TRY(const json::Value said, description_of(folder));
  ExportDescription description;
  LODE_TRY(description.choice, choice_of(folder, said));
  description.family = text_of(said, "family");
  auto experts = experts_of(said);
  if (!experts) return bad_description(folder, "the numbers of experts", "others, or none");
  description.experts = *std::move(experts);
  description.num_experts = std::min(whole(said, "num_experts", 0), loader::kMostExperts);
  std::vector<std::uint32_t> all(description.num_experts);
  std::iota(all.begin(), all.end(), 0U);
  if (description.experts != all) description.choice.experts = description.experts;
  const json::Value* const sources = said.find("sources");
  if (sources == nullptr || sources->as_array() == nullptr) {
    return bad_description(folder, "sources", "none");
  }
  for (const json::Value& source : *sources->as_array()) {
    description.sources.push_back(
        {text_of(source, "name"), whole(source, "bytes", 0), text_of(source, "header_sha256")});
  }
  return description;
}

Result<std::string> tell_other_source(const ExportDescription& said,
                                      const checkpoint::TensorIndex& index) {
  LODE_TRY(const std::vector<SourceShard> stamps, stamp_sources(index));
  const std::string told = fmt::format("made of another checkpoint, {} says: ", kExportFile);
  const auto text = [](std::uint64_t bytes, std::string_view sha256) {
    return fmt::format("{} bytes, SHA-256 of the header {}", bytes,
                       checkpoint::printable(sha256.substr(0, 64)));
  };
  for (const ExportDescription::Source& source : said.sources) {
    const std::string name = checkpoint::printable(source.name);
    const auto here = std::ranges::find(stamps, source.name, &SourceShard::name);
    if (here == stamps.end()) return fmt::format("{}of {}, which is not there", told, name);
    const std::string header = io::to_hex(here->header_sha256);
    if (here->bytes == source.bytes && header == source.header_sha256) continue;
    return fmt::format("{}{} had {}; it has {}", told, name,
                       text(source.bytes, source.header_sha256), text(here->bytes, header));
  }
  if (said.sources.size() == stamps.size()) return std::string();
  return fmt::format("{}of {} files, and there are {}", told, said.sources.size(), stamps.size());
}

Status check_not_export(const std::filesystem::path& folder) {
  if (!is_export(folder)) return {};
  const auto said = description_of(folder);
  const std::string target = said ? checkpoint::printable(text_of(*said, "target")) : "";
  return Error{
      .code = Code::kUsage,
      .thing = folder.string(),
      .wanted = "a checkpoint, or a folder that lode prepare made in Lode's own format",
      .found = fmt::format("an export for {} ({}), made for an engine: its experts lie as the "
                           "engine's own preparation leaves them",
                           target.empty() ? "an engine" : "target " + target, kExportFile),
      .hint = fmt::format("name the checkpoint that it was made of; `lode prepare DIR OUT{}` "
                          "without --export makes a folder that lode runs; `lode inspect {}` says "
                          "what this one is, `lode verify {} --against DIR` whether it is whole",
                          target.empty() ? "" : " --target " + target, folder.string(),
                          folder.string())};
}

Result<std::string> describe_export(const Input& input) {
  LODE_TRY(const std::vector<SourceShard> stamps, stamp_sources(input.index));
  json::Array sources;
  for (const SourceShard& stamp : stamps) {
    sources.push_back(json::object({{"name", stamp.name},
                                    {"bytes", stamp.bytes},
                                    {"header_sha256", io::to_hex(stamp.header_sha256)}}));
  }
  const loader::EngineChoice& choice = input.choice;
  const std::string& online = choice.options.online;
  return json::dump(
             json::object({{"lode_export", kExportVersion},
                           {"target", targets::name(choice.target)},
                           {"family", input.family},
                           {"online", online.empty() ? json::Value() : json::Value(online)},
                           {"flashinfer", choice.options.flashinfer},
                           {"fp8_activations", choice.options.fp8_activations},
                           {"ranks", std::uint64_t{choice.ranks}},
                           {"rank", std::uint64_t{choice.rank}},
                           {"num_experts", num_experts_of(input.binding)},
                           {"experts", numbers(input.engine->banks.front().experts)},
                           {"tensors",
                            "*.experts.* as the engine holds them after its own preparation, for "
                            "the experts above; all others as in the source"},
                           {"config",
                            "config.json is the source's: its quantization_config says how the "
                            "source was stored, not how these tensors lie"},
                           {"sources", std::move(sources)}}),
             2) +
         "\n";
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
