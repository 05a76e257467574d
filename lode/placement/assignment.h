#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lode::placement {

/// Up to this many rows the best assignment is found; above it a greedy one, since the best takes a
/// time that grows with the cube.
inline constexpr std::size_t kMaxExactAssignment = 64;

/// For each row a column of its own, so that the sum of gains is largest; where the gain allows it
/// a row keeps the column of its own number.
///
/// Shapes:  gains [n, n], each below 2^32; the result [n].
std::vector<std::size_t> assign(std::span<const std::int64_t> gains, std::size_t n);

}  // namespace lode::placement
