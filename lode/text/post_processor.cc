#include "lode/text/post_processor.h"

#include "lode/text/json_fields.h"

namespace lode::text {
namespace {

constexpr std::size_t kMostTokens =
    64;  // templates name token lists, so a small file could ask more

Result<std::vector<std::int32_t>> special_token_ids(const json::Value& processor,
                                                    const json::Value& piece,
                                                    const std::string& path) {
  LODE_TRY(const std::string* name, string_field(piece, "id", path));
  const json::Value* tokens = processor.find("special_tokens");
  const json::Value* token = tokens == nullptr ? nullptr : tokens->find(*name);
  if (token == nullptr) return invalid(path, "a name in special_tokens", *name);
  LODE_TRY(const json::Array* values, array_field(*token, "ids", path));
  std::vector<std::int32_t> ids;
  for (const json::Value& value : *values) {
    LODE_TRY(const std::int32_t id, token_id(value, path + ".ids"));
    ids.push_back(id);
  }
  return ids;
}

Result<PostProcessor> read_template(const json::Value& processor, const std::string& path) {
  PostProcessor result;
  LODE_TRY(const json::Array* pieces, array_field(processor, "single", path));
  int num_texts = 0;
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    const std::string place = path + ".single[" + std::to_string(i) + "]";
    const json::Value& piece = (*pieces)[i];
    if (piece.find("Sequence") != nullptr) {
      ++num_texts;
      continue;
    }
    const json::Value* special = piece.find("SpecialToken");
    if (special == nullptr) return invalid(place, "Sequence or SpecialToken", "neither");
    LODE_TRY(const auto ids, special_token_ids(processor, *special, place));
    auto& side = num_texts == 0 ? result.prefix : result.suffix;
    side.insert(side.end(), ids.begin(), ids.end());
    if (side.size() > kMostTokens) return unsupported(place, "at most 64 tokens", "more");
  }
  if (num_texts != 1) return invalid(path + ".single", "one Sequence", std::to_string(num_texts));
  return result;
}

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const json::Value& value, const std::string& path) {
  PostProcessor result;
  if (value.is_null()) return result;
  LODE_TRY(const std::string* type, string_field(value, "type", path));
  if (*type == "ByteLevel") return result;
  if (*type == "TemplateProcessing") return read_template(value, path);
  if (*type != "Sequence") {
    return unsupported(path + ".type", "ByteLevel, TemplateProcessing or a Sequence of them",
                       *type);
  }
  LODE_TRY(const json::Array* parts, array_field(value, "processors", path));
  for (std::size_t i = 0; i < parts->size(); ++i) {
    LODE_TRY(PostProcessor outer,
             from_json((*parts)[i], path + ".processors[" + std::to_string(i) + "]"));
    if (outer.prefix.size() + outer.suffix.size() + result.prefix.size() > kMostTokens) {
      return unsupported(path, "at most 64 tokens", "more");
    }
    outer.prefix.insert(outer.prefix.end(), result.prefix.begin(), result.prefix.end());
    result.suffix.insert(result.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    result.prefix = std::move(outer.prefix);
  }
  return result;
}

}  // namespace lode::text
