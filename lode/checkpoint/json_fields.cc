#include "lode/checkpoint/json_fields.h"

#include "lode/base/fmt.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {

Error wrong_kind(std::string_view path, std::string_view wanted, const json::Value& value) {
  const bool is_short = value.as_array() == nullptr && value.as_object() == nullptr;
  return {.code = Code::kInvalidSource,
          .thing = printable(path),
          .wanted = std::string(wanted),
          .found = is_short ? fmt::format("{} {}", value.kind(), printable(json::dump(value)))
                            : std::string(value.kind())};
}

Result<JsonFields> fields_of(const json::Value* value, std::string path) {
  if (value == nullptr || value->is_null()) return JsonFields{nullptr, std::move(path)};
  if (value->as_object() == nullptr) return wrong_kind(path, "an object", *value);
  return JsonFields{value, std::move(path)};
}

std::string JsonFields::path_of(std::string_view name) const {
  return fmt::format("{}.{}", path, name);
}

const json::Value* JsonFields::find(std::string_view name) const noexcept {
  const json::Value* const member = value != nullptr ? value->find(name) : nullptr;
  return member == nullptr || member->is_null() ? nullptr : member;
}

Result<JsonFields> JsonFields::object(std::string_view name) const {
  return fields_of(find(name), path_of(name));
}

Result<std::optional<std::string>> JsonFields::text(std::string_view name) const {
  const json::Value* const member = find(name);
  if (member == nullptr) return std::optional<std::string>();
  if (member->as_string() == nullptr) return wrong_kind(path_of(name), "a string", *member);
  return std::optional(*member->as_string());
}

Result<std::optional<std::int64_t>> JsonFields::integer(std::string_view name) const {
  const json::Value* const member = find(name);
  if (member == nullptr) return std::optional<std::int64_t>();
  if (member->as_int() == nullptr) return wrong_kind(path_of(name), "a whole number", *member);
  return std::optional(*member->as_int());
}

Result<std::vector<std::string>> JsonFields::texts(std::string_view name) const {
  std::vector<std::string> list;
  const json::Value* const member = find(name);
  if (member == nullptr) return list;
  if (member->as_array() == nullptr) return wrong_kind(path_of(name), "a list", *member);
  for (const json::Value& item : *member->as_array()) {
    if (item.as_string() == nullptr) {
      return wrong_kind(fmt::format("{}[{}]", path_of(name), list.size()), "a string", item);
    }
    list.push_back(*item.as_string());
  }
  return list;
}

}  // namespace lode::checkpoint
