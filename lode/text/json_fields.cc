#include "lode/text/json_fields.h"

#include <limits>

namespace lode::text {
namespace {

std::string kind_of(const json::Value* value) {
  return value == nullptr ? "nothing" : std::string(value->kind());
}

std::string join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

}  // namespace

Error unsupported(std::string path, std::string wanted, std::string found) {
  return Error{.code = Code::kUnsupported,
               .thing = "tokenizer.json " + std::move(path),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Error invalid(std::string path, std::string wanted, std::string found) {
  return Error{.code = Code::kInvalidSource,
               .thing = "tokenizer.json " + std::move(path),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Result<const std::string*> string_field(const json::Value& object, std::string_view name,
                                        const std::string& path) {
  const json::Value* member = object.find(name);
  const std::string* text = member == nullptr ? nullptr : member->as_string();
  if (text == nullptr) return invalid(join(path, name), "a string", kind_of(member));
  return text;
}

Result<const json::Array*> array_field(const json::Value& object, std::string_view name,
                                       const std::string& path) {
  const json::Value* member = object.find(name);
  const json::Array* array = member == nullptr ? nullptr : member->as_array();
  if (array == nullptr) return invalid(join(path, name), "an array", kind_of(member));
  return array;
}

Result<bool> bool_field(const json::Value& object, std::string_view name, const std::string& path) {
  const json::Value* member = object.find(name);
  const bool* value = member == nullptr ? nullptr : member->as_bool();
  if (value == nullptr) return invalid(join(path, name), "true or false", kind_of(member));
  return *value;
}

Result<bool> bool_field_or(const json::Value& object, std::string_view name, bool absent,
                           const std::string& path) {
  const json::Value* member = object.find(name);
  if (member == nullptr || member->is_null()) return absent;
  return bool_field(object, name, path);
}

Result<std::int32_t> token_id(const json::Value& value, const std::string& path) {
  const std::int64_t* id = value.as_int();
  if (id == nullptr || *id < 0 || *id > std::numeric_limits<std::int32_t>::max()) {
    return invalid(path, "a token id from 0 to 2147483647", json::dump(value).substr(0, 40));
  }
  return static_cast<std::int32_t>(*id);
}

}  // namespace lode::text
