#include "lode/engine/source.h"

#include <algorithm>

#include "lode/base/fmt.h"
#include "lode/checkpoint/file_source.h"
#include "lode/checkpoint/input_file.h"
#include "lode/prepared/consume.h"
#include "lode/prepared/export_folder.h"
#include "lode/prepared/model_fit.h"
#include "lode/text/tokenizer.h"

namespace lode::engine {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr std::uint64_t kMaxTokenizerBytes = 64ULL << 20;
// Of a tokenizer that has not been read: an entry of 12 bytes takes 24 in a list that grows and 48
// among the names; a merge of 5 bytes takes 15 and 16.
constexpr std::uint64_t kMakingShare = 7;

Error no_tokenizer(const std::filesystem::path& folder) {
  return Error{.code = Code::kInvalidSource,
               .thing = kTokenizerFile,
               .wanted = "a tokenizer beside the weights",
               .found = "no such file",
               .where = folder.string()};
}

Status check_all_experts(const prepared::Checkpoint& checkpoint) {
  if (checkpoint.index.choice.experts.empty()) return {};
  return Error{.code = Code::kUnsupported,
               .thing = checkpoint.folder.string(),
               .wanted = "all experts of each layer, to run it here",
               .found = fmt::format("{}, for one rank of an engine",
                                    count_of(checkpoint.index.choice.experts.size(), "expert"))};
}

// The config lies beside the weights, but where each of them is the index says.
Result<Source> open_prepared(const std::filesystem::path& folder,
                             prepared::Verification verification) {
  LODE_TRY(prepared::Checkpoint opened, prepared::open(folder, verification));
  LODE_TRY_STATUS(check_all_experts(opened));
  LODE_TRY(checkpoint::HfConfig config, checkpoint::HfConfig::read(folder));
  LODE_TRY(const families::Family* family, families::find_family(config));
  LODE_TRY(families::ModelSpec spec, family->read_spec(config));
  LODE_TRY_STATUS(prepared::check_model(opened.index.stages, spec));
  LODE_TRY(checkpoint::GenerationConfig generation, checkpoint::read_generation_config(folder));
  return Source{.folder = folder,
                .index = {},
                .config = std::move(config),
                .generation = std::move(generation),
                .quant = {},
                .family = family,
                .spec = std::move(spec),
                .binding = {},
                .prepared = std::move(opened),
                .tokenizer = std::nullopt};
}

}  // namespace

std::string model_name(const Source& source) {
  return std::filesystem::absolute(source.folder / "x").parent_path().filename().string();
}

bool has_tokenizer(const std::filesystem::path& folder) {
  std::error_code absent;
  return std::filesystem::exists(folder / kTokenizerFile, absent);
}

Status check_folder(const std::filesystem::path& folder) {
  std::error_code fault;
  if (std::filesystem::is_directory(folder, fault)) return {};
  const bool there = std::filesystem::exists(folder, fault);
  return Error{.code = Code::kInvalidSource,
               .thing = folder.string(),
               .wanted = "a folder with config.json and *.safetensors",
               .found = there ? "no folder" : "nothing of that name"};
}

Result<Source> open_source(const std::filesystem::path& folder,
                           prepared::Verification verification) {
  LODE_TRY_STATUS(check_folder(folder));
  if (prepared::is_prepared(folder)) return open_prepared(folder, verification);
  LODE_TRY_STATUS(prepared::check_not_given_away(folder, {}));
  return open_source_to_prepare(folder);
}

Result<Source> open_source_to_prepare(const std::filesystem::path& folder) {
  LODE_TRY_STATUS(check_folder(folder));
  LODE_TRY_STATUS(prepared::check_not_export(folder));
  if (prepared::is_prepared(folder)) {
    return Error{.code = Code::kUsage,
                 .thing = folder.string(),
                 .wanted = "the folder of a checkpoint as it was published",
                 .found = "one that lode prepare has made"};
  }
  LODE_TRY(checkpoint::HfConfig config, checkpoint::HfConfig::read(folder));
  LODE_TRY(const families::Family* family, families::find_family(config));
  LODE_TRY(families::ModelSpec spec, family->read_spec(config));
  LODE_TRY(checkpoint::QuantConfig quant, checkpoint::read_quant_config(folder, config));
  LODE_TRY(checkpoint::GenerationConfig generation, checkpoint::read_generation_config(folder));
  LODE_TRY(checkpoint::TensorIndex index, checkpoint::open_index(folder));
  LODE_TRY(loader::Binding binding, loader::bind(index, *family, spec, quant));
  return Source{.folder = folder,
                .index = std::move(index),
                .config = std::move(config),
                .generation = std::move(generation),
                .quant = std::move(quant),
                .family = family,
                .spec = std::move(spec),
                .binding = std::move(binding),
                .prepared = std::nullopt,
                .tokenizer = std::nullopt};
}

Status check_not_prepared(const Source& source) {
  if (!source.prepared) return {};
  return Error{.code = Code::kUsage,
               .thing = source.folder.string(),
               .wanted = "a checkpoint as it was published",
               .found = "one that `lode prepare` made"};
}

std::uint64_t source_bytes(const Source& source) {
  return source.prepared ? source.prepared->data_bytes() : source.index.tensor_bytes();
}

std::size_t num_source_files(const Source& source) {
  return source.prepared ? source.prepared->files.size() : source.index.shards().size();
}

std::uint64_t metadata_bytes(const Source& source) {
  const std::uint64_t prepared = source.prepared ? source.prepared->held_bytes() : 0;
  const std::uint64_t known = source.index.held_bytes() + source.binding.held_bytes() + prepared;
  if (source.tokenizer) return known + source.tokenizer->held_bytes();
  std::error_code absent;
  const auto file_bytes = std::filesystem::file_size(source.folder / kTokenizerFile, absent);
  return absent ? known : known + text::tokenizer_bytes_bound(file_bytes);
}

std::uint64_t reading_bytes(const Source& source) {
  if (source.tokenizer) return source.tokenizer->making_bytes();
  std::error_code absent;
  const auto file_bytes = std::filesystem::file_size(source.folder / kTokenizerFile, absent);
  return absent ? 0 : std::min<std::uint64_t>(file_bytes, kMaxTokenizerBytes) * kMakingShare;
}

Status open_tokenizer(Source& source) {
  if (source.tokenizer || !has_tokenizer(source.folder)) return {};
  LODE_TRY(source.tokenizer, read_tokenizer(source.folder));
  return {};
}

Result<const text::Tokenizer*> tokenizer_of(const Source& source) {
  if (!source.tokenizer) return no_tokenizer(source.folder);
  return &*source.tokenizer;
}

Result<std::vector<std::int64_t>> end_ids_of(const Source& source) {
  return checkpoint::stop_ids(source.generation, source.config, std::nullopt);
}

Result<text::Tokenizer> read_tokenizer(const std::filesystem::path& folder) {
  if (!has_tokenizer(folder)) return no_tokenizer(folder);
  LODE_TRY(const auto file, checkpoint::InputFile::open(folder / kTokenizerFile));
  const std::uint64_t bytes = file.identity().bytes;
  if (bytes > kMaxTokenizerBytes) {
    return Error{.code = Code::kInvalidSource,
                 .thing = file.path(),
                 .wanted = fmt::format("at most {} bytes", kMaxTokenizerBytes),
                 .found = fmt::format("{}", bytes)};
  }
  checkpoint::FileSource text(file, 0, bytes);
  auto tokenizer = text::Tokenizer::from_json(text);
  if (!tokenizer) return at(kTokenizerFile, std::move(tokenizer).error());
  return tokenizer;
}

}  // namespace lode::engine
