#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace lode::tensor {

/// Extents of a tensor, outermost first; at most four.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::uint64_t> extents) {
    for (const std::uint64_t extent : extents) extents_.at(rank_++) = extent;
  }

  constexpr std::size_t rank() const noexcept { return rank_; }
  constexpr std::uint64_t operator[](std::size_t axis) const noexcept { return extents_[axis]; }
  std::span<const std::uint64_t> extents() const noexcept { return {extents_.data(), rank_}; }
  /// Product of the extents; 1 at rank 0. Ours, not a file's: files are checked before this.
  constexpr std::uint64_t elements() const noexcept {
    std::uint64_t product = 1;
    for (std::size_t axis = 0; axis < rank_; ++axis) product *= extents_[axis];
    return product;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::uint64_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};

/// "[32, 5760]".
std::string to_string(const Shape& shape);

}  // namespace lode::tensor
