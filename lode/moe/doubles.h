#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace lode::moe {

/// Numbers in f64 that live in a thread's tile of floats, two floats each. A view.
class Doubles {
 public:
  static constexpr std::size_t kFloats = sizeof(double) / sizeof(float);

  Doubles() = default;
  /// The first `size` numbers of `tile`.
  Doubles(std::span<float> tile, std::size_t size) : store_(tile.first(size * kFloats)) {}

  std::size_t size() const noexcept { return store_.size() / kFloats; }
  double operator[](std::size_t index) const noexcept {
    double value = 0.0;
    std::memcpy(&value, store_.data() + index * kFloats, sizeof value);
    return value;
  }
  void set(std::size_t index, double value) const noexcept {
    std::memcpy(store_.data() + index * kFloats, &value, sizeof value);
  }
  Doubles part(std::size_t first, std::size_t count) const noexcept {
    Doubles out;
    out.store_ = store_.subspan(first * kFloats, count * kFloats);
    return out;
  }

 private:
  std::span<float> store_;
};

}  // namespace lode::moe
