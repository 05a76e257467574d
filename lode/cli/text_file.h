#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::cli {

/// The whole of a file, or of standard input where `path` is empty or "-".
/// Errors: kIo naming the file.
Result<std::string> read_text_file(const std::string& path);

/// Writes `text` as the whole of a file.
/// Errors: kIo naming the file.
Status write_text_file(const std::string& path, std::string_view text);

/// Token ids out of JSON: a list of whole numbers, or an object with such a list under "ids".
/// Errors: kInvalidSource for other JSON, kUsage for a number that is no id.
Result<std::vector<std::int32_t>> parse_ids(std::string_view json_text);

}  // namespace lode::cli
