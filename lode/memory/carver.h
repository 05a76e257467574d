#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lode/base/check.h"

namespace lode::memory {

/// Lays arrays into one block, each on a 64-byte line: a first run without a block counts the
/// bytes, a second run of the same calls hands the arrays out. So the count cannot differ from the
/// use.
class Carver {
 public:
  static constexpr std::size_t kLineBytes = 64;

  Carver() = default;  // counts only; gives spans without memory
  explicit Carver(std::span<std::byte> block) : block_(block) {}

  /// The next `count` elements; empty while only counting.
  template <class T>
  std::span<T> take(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kLineBytes);
    const std::size_t offset = bytes_;
    bytes_ += (count * sizeof(T) + kLineBytes - 1) / kLineBytes * kLineBytes;
    if (block_.empty()) return {};
    LODE_CHECK(bytes_ <= block_.size(), "more is carved than was counted");
    return {static_cast<T*>(static_cast<void*>(block_.data() + offset)), count};
  }

  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> block_;
  std::size_t bytes_ = 0;
};

}  // namespace lode::memory
