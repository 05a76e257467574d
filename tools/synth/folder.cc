#include "tools/synth/folder.h"

#include <array>
#include <cstring>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "tools/synth/family.h"

namespace lode::synth {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 24;

/// A size in the config under any of its names.
Result<std::uint64_t> size_in(const json::Value& config,
                              std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const json::Value* value = config.find(name);
    if (value == nullptr || value->as_int() == nullptr || *value->as_int() <= 0) continue;
    return static_cast<std::uint64_t>(*value->as_int());
  }
  return Error{.code = Code::kInvalidSource,
               .thing = "config.json",
               .wanted = "a number above 0 named " + std::string(*names.begin())};
}

Result<ModelShape> shape_in(const json::Value& config) {
  const json::Value* type = config.find("model_type");
  const std::string* family = type != nullptr ? type->as_string() : nullptr;
  if (family == nullptr || family_by_name(*family) == nullptr) {
    return Error{.code = Code::kUnsupported,
                 .thing = "model_type",
                 .wanted = "a family that lode-synth knows",
                 .found = family != nullptr ? *family : "nothing"};
  }
  ModelShape shape{.family = *family};
  LODE_TRY(shape.layers, size_in(config, {"num_hidden_layers"}));
  LODE_TRY(shape.hidden, size_in(config, {"hidden_size"}));
  LODE_TRY(shape.intermediate, size_in(config, {"moe_intermediate_size", "intermediate_size"}));
  LODE_TRY(shape.experts, size_in(config, {"num_experts", "num_local_experts"}));
  LODE_TRY(shape.top_k, size_in(config, {"num_experts_per_tok", "experts_per_token"}));
  LODE_TRY(shape.heads, size_in(config, {"num_attention_heads"}));
  LODE_TRY(shape.kv_heads, size_in(config, {"num_key_value_heads", "num_attention_heads"}));
  LODE_TRY(shape.vocab, size_in(config, {"vocab_size"}));
  auto head_dim = size_in(config, {"head_dim"});
  shape.head_dim = head_dim ? *head_dim : shape.hidden / shape.heads;
  const json::Value* tied = config.find("tie_word_embeddings");
  shape.tied = tied != nullptr && tied->as_bool() != nullptr && *tied->as_bool();
  return shape;
}

Result<json::Object> config_in(const std::filesystem::path& folder) {
  LODE_TRY(const auto text, checkpoint::read_small_file(folder / "config.json", kMaxConfigBytes));
  LODE_TRY(const json::Value value, json::parse(text.value_or("null")));
  if (value.as_object() == nullptr) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "config.json",
                 .wanted = "an object",
                 .found = std::string(value.kind()),
                 .where = folder.string()};
  }
  json::Object config;
  for (const json::Member& member : *value.as_object()) {
    if (member.first != "quantization_config") config.push_back(member);
  }
  return config;
}

}  // namespace

Result<FolderSource> FolderSource::open(const std::filesystem::path& folder) {
  LODE_TRY(json::Object config, config_in(folder));
  LODE_TRY(ModelShape shape, shape_in(json::Value(config)));
  LODE_TRY(checkpoint::TensorIndex index, checkpoint::open_index(folder));
  std::vector<checkpoint::InputFile> files;
  for (const checkpoint::Shard& shard : index.shards()) {
    LODE_TRY(checkpoint::InputFile file, checkpoint::InputFile::open(shard.path));
    files.push_back(std::move(file));
  }
  return FolderSource(folder, std::move(index), std::move(files), std::move(shape),
                      std::move(config));
}

Status FolderSource::rows(const MatrixId& matrix, std::uint64_t first_row,
                          std::span<float> out) const {
  LODE_TRY(const checkpoint::TensorRecord* tensor, index_.want(matrix.name));
  const bool plain = tensor->is(formats::Format::kBf16) || tensor->is(formats::Format::kF32);
  if (!plain || checkpoint::num_elements(*tensor) != matrix.rows * matrix.columns) {
    return Error{.code = Code::kInvalidSource,
                 .thing = matrix.name,
                 .wanted = "BF16 or F32, " + std::to_string(matrix.rows) + " x " +
                           std::to_string(matrix.columns),
                 .found = checkpoint::describe(*tensor)};
  }
  const std::uint64_t number_bytes = formats::info(*tensor->format).bits / 8;
  std::vector<std::byte> bytes(out.size() * number_bytes);
  const std::uint64_t offset = tensor->file_offset + first_row * matrix.columns * number_bytes;
  LODE_TRY_STATUS(files_[tensor->shard_id].read_into(offset, bytes));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = formats::round_to_bf16(formats::number_at(*tensor->format, bytes, i));
  }
  return {};
}

Status FolderSource::copy_companions(const std::filesystem::path& to) const {
  constexpr std::array kCompanions{"tokenizer.json",
                                   "tokenizer_config.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "chat_template.jinja",
                                   "special_tokens_map.json",
                                   "generation_config.json"};
  for (const char* name : kCompanions) {
    std::error_code error;
    if (!std::filesystem::exists(folder_ / name, error)) continue;
    std::filesystem::copy_file(folder_ / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) {
      return Error{.code = Code::kIo,
                   .thing = std::string("copying ") + name,
                   .found = error.message(),
                   .where = folder_.string()};
    }
    // A source may be read-only; a copy is not.
    std::filesystem::permissions(to / name, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add, error);
  }
  return {};
}

}  // namespace lode::synth
