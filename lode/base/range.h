#pragma once

#include <algorithm>
#include <cstdint>

namespace lode {

/// From `begin` to before `end`; all there is where nobody says less.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = ~std::uint64_t{0};

  constexpr std::uint64_t size() const noexcept { return end > begin ? end - begin : 0; }
  /// The part of it below `count`.
  constexpr Range below(std::uint64_t count) const noexcept {
    return {std::min(begin, count), std::min(end, count)};
  }

  friend constexpr bool operator==(const Range&, const Range&) = default;
};

}  // namespace lode
