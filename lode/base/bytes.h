#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lode/base/result.h"

namespace lode {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

/// a + b and a * b, or nothing where 64 bits do not hold the result. For sizes out of files.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}
constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

template <std::unsigned_integral T>
constexpr T ceil_div(T value, T unit) noexcept {
  return value / unit + (value % unit != 0 ? 1 : 0);
}
template <std::unsigned_integral T>
constexpr T align_up(T value, T unit) noexcept {
  return ceil_div(value, unit) * unit;
}

/// "12GiB", "900MB", "4096", "1.5GiB" to bytes. KB, MB, GB are powers of ten; K, M, G are KiB, MiB,
/// GiB. Errors: kUsage naming the text for anything else, for a negative number and for overflow.
Result<std::uint64_t> parse_bytes(std::string_view text);

/// "1.50 GiB", "64.0 MiB", "512 B": for people. Exact counts go to JSON.
std::string human_bytes(std::uint64_t bytes);

/// "1 shard", "3 shards": a number of things whose names take an s.
std::string count_of(std::uint64_t count, std::string_view thing);

}  // namespace lode
