#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "lode/base/result.h"

namespace lode::comm {

/// Bytes of an Error on its way to another rank: small enough for MPI to send without being asked.
inline constexpr std::size_t kErrorRecordBytes = 2048;
using ErrorRecord = std::array<std::byte, kErrorRecordBytes>;

/// Layout:  code, one byte; then thing, wanted, found, where, hint: two bytes of length, low one
///          first, and that many bytes, at most 400 of each part (cut between UTF-8 characters).
ErrorRecord write_error_record(const Error& error);

/// Takes any bytes: what cannot be read as a record becomes an Error that says so.
Error read_error_record(std::span<const std::byte> record);

}  // namespace lode::comm
