#include "lode/ops/rope.h"

#include <cmath>
#include <cstddef>

namespace lode::ops {

void rope_angles(std::span<const float> frequencies, float magnitude, std::uint32_t position,
                 std::span<float> cosines, std::span<float> sines) noexcept {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    cosines[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * magnitude;
    sines[i] = static_cast<float>(std::sin(static_cast<double>(angle))) * magnitude;
  }
}

void rotate_heads(std::span<float> heads, std::size_t head_dim, std::span<const float> cosines,
                  std::span<const float> sines) noexcept {
  const std::size_t half = cosines.size();
  for (std::size_t first = 0; first < heads.size(); first += head_dim) {
    float* a = heads.data() + first;
    float* b = a + half;
    for (std::size_t i = 0; i < half; ++i) {
      const float x = a[i];
      const float y = b[i];
      a[i] = x * cosines[i] - y * sines[i];
      b[i] = x * sines[i] + y * cosines[i];
    }
  }
}

}  // namespace lode::ops
