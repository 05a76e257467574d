#include "lode/kernels/scalar/pack_activation.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "lode/kernels/activation.h"

namespace lode::kernels::scalar {
namespace {

/// The largest magnitude as bits: they order as the numbers do, with infinity and NaN on top.
std::uint32_t max_magnitude_bits(const float* x, std::size_t n) noexcept {
  std::uint32_t max = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFu;
    max = bits > max ? bits : max;
  }
  return max;
}

/// The scale of a block, 0 and NaN having the meanings that pack_activation.h states.
float block_scale(const float* x, std::size_t n) noexcept {
  const std::uint32_t max = max_magnitude_bits(x, n);
  if (max >= 0x7F800000u) return std::numeric_limits<float>::quiet_NaN();
  const float scale = __builtin_bit_cast(float, max) / 127.0F;
  return scale >= std::numeric_limits<float>::min() ? scale : 0.0F;
}

std::int8_t code_of(float x, float scale) noexcept {
  if (!(scale > 0.0F)) return 0;
  return static_cast<std::int8_t>(std::nearbyint(x / scale));
}

std::size_t place_in_block(ActivationForm form, std::size_t i) noexcept {
  return form == ActivationForm::kI8Plain ? i : i / 8 * 8 + i % 8 / 2 + i % 2 * 4;
}

}  // namespace

void pack_activation(ActivationForm form, const float* x, std::size_t k, std::byte* out) noexcept {
  std::memset(out, 0, activation_row_bytes(form, k));
  if (form == ActivationForm::kF32) {
    std::memcpy(out, x, 4 * k);
    return;
  }
  for (std::size_t begin = 0; begin < k; begin += kActivationBlock) {
    const std::size_t n = k - begin < kActivationBlock ? k - begin : kActivationBlock;
    PackedBlock block{};
    block.scale = block_scale(x + begin, n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int8_t code = code_of(x[begin + i], block.scale);
      block.codes[place_in_block(form, i)] = code;
      block.corrections[i / 16] -= code_bias(form) * code;
    }
    std::memcpy(out + begin / kActivationBlock * sizeof block, &block, sizeof block);
  }
}

}  // namespace lode::kernels::scalar
