#include "lode/checkpoint/hf_config.h"

#include <limits>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/json_fields.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} * 1024 * 1024;
constexpr std::string_view kNested = "text_config";

// The value at a dotted path, or null; null itself counts as absent.
const json::Value* walk(const json::Value& from, std::string_view path) {
  const json::Value* at = &from;
  while (at != nullptr) {
    const auto dot = path.find('.');
    at = at->find(path.substr(0, dot));
    if (dot == path.npos) break;
    path.remove_prefix(dot + 1);
  }
  return at == nullptr || at->is_null() ? nullptr : at;
}

Error missing(Keys keys) {
  std::string names;
  for (const std::string_view key : keys) names += (names.empty() ? "" : " or ") + std::string(key);
  return {.code = Code::kInvalidSource,
          .thing = names + " in the config",
          .wanted = "a value",
          .found = "none"};
}

std::optional<std::int64_t> take_int(const json::Value& value) {
  const std::int64_t* number = value.as_int();
  return number != nullptr ? std::optional(*number) : std::nullopt;
}
std::optional<double> take_float(const json::Value& value) {
  return value.is_number() ? std::optional(value.number()) : std::nullopt;
}
std::optional<bool> take_bool(const json::Value& value) {
  return value.as_bool() != nullptr ? std::optional(*value.as_bool()) : std::nullopt;
}
std::optional<std::string> take_string(const json::Value& value) {
  return value.as_string() != nullptr ? std::optional(*value.as_string()) : std::nullopt;
}
std::optional<std::uint32_t> take_extent(const json::Value& value) {
  const std::int64_t* number = value.as_int();
  if (number == nullptr || *number <= 0) return std::nullopt;
  if (*number > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

constexpr std::string_view kInt = "a whole number";
constexpr std::string_view kFloat = "a number";
constexpr std::string_view kBool = "true or false";
constexpr std::string_view kString = "a string";
constexpr std::string_view kExtent = "a whole number from 1 to 4294967295";

// The value as the kind that `take` knows, or an error that names the path.
template <class T>
Result<T> scalar(const json::Value* value, std::string_view path, std::string_view wanted,
                 std::optional<T> (*take)(const json::Value&)) {
  if (std::optional<T> taken = take(*value)) return *std::move(taken);
  return wrong_kind(fmt::format("{} in the config", path), wanted, *value);
}

}  // namespace

Result<HfConfig> HfConfig::parse(std::string_view text) {
  LODE_TRY(json::Value root, json::parse(text, {.max_bytes = kMaxConfigBytes}));
  if (root.as_object() == nullptr) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "config.json",
                 .wanted = "a JSON object",
                 .found = std::string(root.kind())};
  }
  return HfConfig(std::move(root));
}

Result<HfConfig> HfConfig::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  LODE_TRY(const std::optional<std::string> text, read_small_file(path, kMaxConfigBytes));
  if (!text) {
    return Error{.code = Code::kInvalidSource,
                 .thing = printable(path.string()),
                 .wanted = "the config of the model",
                 .found = "no such file"};
  }
  Result<HfConfig> config = parse(*text);
  if (!config) return at(printable(path.string()), std::move(config).error());
  return config;
}

HfConfig::Found HfConfig::look_up(Keys keys) const {
  const json::Value* const nested = root_.find(kNested);
  for (const std::string_view key : keys) {
    read_.emplace(key);
    if (nested != nullptr) {
      if (const json::Value* value = walk(*nested, key)) {
        return {value, fmt::format("{}.{}", kNested, key)};
      }
    }
    if (const json::Value* value = walk(root_, key)) return {value, std::string(key)};
  }
  return {};
}

const json::Value* HfConfig::find(Keys keys) const { return look_up(keys).value; }

Result<std::int64_t> HfConfig::get_int(Keys keys) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return missing(keys);
  return scalar(found.value, found.path, kInt, take_int);
}
Result<std::int64_t> HfConfig::get_int(Keys keys, std::int64_t fallback) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return fallback;
  return scalar(found.value, found.path, kInt, take_int);
}
Result<double> HfConfig::get_float(Keys keys) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return missing(keys);
  return scalar(found.value, found.path, kFloat, take_float);
}
Result<double> HfConfig::get_float(Keys keys, double fallback) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return fallback;
  return scalar(found.value, found.path, kFloat, take_float);
}
Result<bool> HfConfig::get_bool(Keys keys, bool fallback) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return fallback;
  return scalar(found.value, found.path, kBool, take_bool);
}
Result<std::string> HfConfig::get_string(Keys keys) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return missing(keys);
  return scalar(found.value, found.path, kString, take_string);
}
Result<std::string> HfConfig::get_string(Keys keys, std::string_view fallback) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return std::string(fallback);
  return scalar(found.value, found.path, kString, take_string);
}
Result<std::uint32_t> HfConfig::get_extent(Keys keys) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return missing(keys);
  return scalar(found.value, found.path, kExtent, take_extent);
}
Result<std::uint32_t> HfConfig::get_extent(Keys keys, std::uint32_t fallback) const {
  const Found found = look_up(keys);
  if (found.value == nullptr) return fallback;
  return scalar(found.value, found.path, kExtent, take_extent);
}

template <class T, class Take>
Result<std::vector<T>> HfConfig::get_list(Keys keys, std::string_view wanted, Take take) const {
  const Found found = look_up(keys);
  std::vector<T> list;
  if (found.value == nullptr) return list;
  const json::Array* const items = found.value->as_array();
  if (items == nullptr) {
    LODE_TRY(T only, scalar<T>(found.value, found.path, wanted, take));
    list.push_back(std::move(only));
    return list;
  }
  for (std::size_t i = 0; i < items->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", found.path, i);
    LODE_TRY(T item, scalar<T>(&(*items)[i], path, wanted, take));
    list.push_back(std::move(item));
  }
  return list;
}

Result<std::vector<std::int64_t>> HfConfig::get_ints(Keys keys) const {
  return get_list<std::int64_t>(keys, kInt, take_int);
}
Result<std::vector<double>> HfConfig::get_floats(Keys keys) const {
  return get_list<double>(keys, kFloat, take_float);
}
Result<std::vector<std::string>> HfConfig::get_strings(Keys keys) const {
  return get_list<std::string>(keys, kString, take_string);
}

std::string HfConfig::model_type() const {
  read_.emplace("model_type");
  const json::Value* const value = walk(root_, "model_type");
  return value != nullptr && value->as_string() != nullptr ? *value->as_string() : "";
}

std::string HfConfig::text_model_type() const {
  const Found found = look_up({"model_type"});
  return found.value != nullptr && found.value->as_string() != nullptr ? *found.value->as_string()
                                                                       : "";
}

std::string HfConfig::architecture() const {
  read_.emplace("architectures");
  const json::Value* const list = walk(root_, "architectures");
  const json::Array* const items = list != nullptr ? list->as_array() : nullptr;
  if (items == nullptr || items->empty() || items->front().as_string() == nullptr) return "";
  return *items->front().as_string();
}

std::vector<std::string> HfConfig::unread_keys() const {
  // A key counts as read when it, or anything inside it, was asked for.
  const auto was_read = [&](std::string_view key) {
    const auto next = read_.lower_bound(key);
    if (next != read_.end() && *next == key) return true;
    const auto inside = read_.lower_bound(std::string(key) + ".");
    return inside != read_.end() && inside->starts_with(std::string(key) + ".");
  };
  std::vector<std::string> unread;
  for (const auto& [key, value] : *root_.as_object()) {
    if (key == kNested && value.as_object() != nullptr) {
      for (const auto& [inner, ignored] : *value.as_object()) {
        if (!was_read(inner)) unread.push_back(fmt::format("{}.{}", kNested, inner));
      }
    } else if (!was_read(key)) {
      unread.push_back(key);
    }
  }
  return unread;
}

}  // namespace lode::checkpoint
