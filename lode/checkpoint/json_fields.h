#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"

namespace lode::checkpoint {

/// An object inside a settings file, and the path to it for messages. An absent member and null
/// are the same: none.
struct JsonFields {
  const json::Value* value = nullptr;  // null, or an object
  std::string path;

  /// The member as it is; null where absent.
  const json::Value* find(std::string_view name) const noexcept;

  /// Errors: kInvalidSource naming the path of a member of another kind.
  Result<JsonFields> object(std::string_view name) const;
  Result<std::optional<std::string>> text(std::string_view name) const;
  Result<std::optional<std::int64_t>> integer(std::string_view name) const;
  Result<std::vector<std::string>> texts(std::string_view name) const;

  std::string path_of(std::string_view name) const;
};

/// Errors: kInvalidSource where `value` is there and no object.
Result<JsonFields> fields_of(const json::Value* value, std::string path);

/// An error that names the path, what was wanted, and the kind that was found.
Error wrong_kind(std::string_view path, std::string_view wanted, const json::Value& value);

}  // namespace lode::checkpoint
