#pragma once

#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/json/json.h"

namespace lode::text {

// Readers of one member of a JSON object, which name the JSON path when it is not what was wanted.

/// Errors: kInvalidSource naming `path`.`name` where it is absent or of another kind.
Result<const std::string*> string_field(const json::Value& object, std::string_view name,
                                        const std::string& path);
/// Errors: as string_field.
Result<const json::Array*> array_field(const json::Value& object, std::string_view name,
                                       const std::string& path);
/// Errors: as string_field.
Result<bool> bool_field(const json::Value& object, std::string_view name, const std::string& path);
/// `absent` where the member is absent or null. Errors: kInvalidSource where it is another kind.
Result<bool> bool_field_or(const json::Value& object, std::string_view name, bool absent,
                           const std::string& path);
/// A token id: 0 to 2^31 - 1. Errors: kInvalidSource naming the path otherwise.
Result<std::int32_t> token_id(const json::Value& value, const std::string& path);

/// kUnsupported: what stands at a JSON path is nothing that Lode can follow exactly.
Error unsupported(std::string path, std::string wanted, std::string found);
/// kInvalidSource: what stands at a JSON path cannot be meant.
Error invalid(std::string path, std::string wanted, std::string found);

}  // namespace lode::text
