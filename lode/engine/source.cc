#include "lode/engine/source.h"

#include "lode/checkpoint/input_file.h"
#include "lode/text/tokenizer.h"

namespace lode::engine {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr std::uint64_t kMaxTokenizerBytes = 64ULL << 20;

Error no_tokenizer(const std::filesystem::path& folder) {
  return Error{.code = Code::kInvalidSource,
               .thing = kTokenizerFile,
               .wanted = "a tokenizer beside the weights",
               .found = "no such file",
               .where = folder.string()};
}

}  // namespace

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

Result<Source> open_source(const std::filesystem::path& folder) {
  LODE_TRY_STATUS(check_folder(folder));
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
                .tokenizer = std::nullopt};
}

std::uint64_t metadata_bytes(const Source& source) {
  std::error_code absent;
  const auto file_bytes = std::filesystem::file_size(source.folder / kTokenizerFile, absent);
  const std::uint64_t tokenizer = absent ? 0 : text::tokenizer_bytes_bound(file_bytes);
  return source.index.held_bytes() + source.binding.held_bytes() + tokenizer;
}

Status open_tokenizer(Source& source) {
  if (source.tokenizer || !has_tokenizer(source.folder)) return {};
  LODE_TRY(const std::string description, read_tokenizer_file(source.folder));
  auto tokenizer = text::Tokenizer::from_json(description);
  if (!tokenizer) return at(kTokenizerFile, std::move(tokenizer).error());
  source.tokenizer = *std::move(tokenizer);
  return {};
}

Result<const text::Tokenizer*> tokenizer_of(const Source& source) {
  if (!source.tokenizer) return no_tokenizer(source.folder);
  return &*source.tokenizer;
}

Result<std::vector<std::int64_t>> end_ids_of(const Source& source) {
  return checkpoint::stop_ids(source.generation, source.config, std::nullopt);
}

Result<std::string> read_tokenizer_file(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kTokenizerFile;
  LODE_TRY(std::optional<std::string> text, checkpoint::read_small_file(path, kMaxTokenizerBytes));
  if (!text) return no_tokenizer(folder);
  return *std::move(text);
}

}  // namespace lode::engine
