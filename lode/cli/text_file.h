#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::cli {

/// The whole of a file, or of standard input where `path` is empty or "-".
/// Errors: kIo naming the file; kUsage where it has more than `max_bytes`, which are read at most.
Result<std::string> read_text_file(const std::string& path,
                                   std::size_t max_bytes = std::string::npos);

/// Whether a file can be written there: found out before the work whose result it is to hold.
/// Nothing is left behind, and what was there stays. Errors: kIo naming the file.
Status check_writable(const std::string& path);

/// Writes `text` as the whole of a file.
/// Errors: kIo or kNoSpace naming the file.
Status write_text_file(const std::string& path, std::string_view text);

/// Prints `text` and sees to it that it has arrived; also what was printed before it.
/// Errors: kNoSpace, kIo.
Status write_standard_output(std::string_view text);

/// Prints `text` on standard error at once. Where nobody listens nothing is said.
void write_standard_error(std::string_view text) noexcept;

/// Token ids out of JSON: a list of whole numbers, or an object with such a list under "ids".
/// Errors: kInvalidSource for other JSON, kUsage for a number that is no id.
Result<std::vector<std::int32_t>> parse_ids(std::string_view json_text);

}  // namespace lode::cli
