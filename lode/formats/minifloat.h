#pragma once

#include <cstdint>

/// Helpers that kernel files compiled for any ISA may use: never a symbol of their own.
#define LODE_ALWAYS_INLINE [[gnu::always_inline]] inline constexpr

namespace lode::formats {

/// A sign, exponent and mantissa narrower than fp32's, with IEEE subnormals.
/// Source: IEEE 754-2019, 3.3 and 4.3.1, for narrower widths.
struct Minifloat {
  int mantissa_bits;
  int bias;
  std::uint32_t overflow_code;  // what values that round above the largest finite one become
  std::uint32_t nan_code;
  std::uint32_t sign_bit;
};

/// Rounds `value` to nearest, ties to even; the sign is kept, also on zeros and NaN.
LODE_ALWAYS_INLINE std::uint32_t encode_minifloat(const Minifloat& to, float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = (bits >> 31) != 0 ? to.sign_bit : 0u;
  if (magnitude > 0x7F800000u) return sign | to.nan_code;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const int lowest = 1 - to.bias;
  const int below = exponent < lowest ? lowest - exponent : 0;
  const int shift = 23 - to.mantissa_bits + below;
  if (shift > 24) return sign;  // below half of the smallest subnormal
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const std::uint32_t odd = (mantissa >> shift) & 1u;
  const std::uint32_t rounded = (mantissa + (1u << (shift - 1)) - 1u + odd) >> shift;
  const auto step = static_cast<std::uint32_t>(below > 0 ? 0 : exponent - lowest);
  const std::uint32_t code = (step << to.mantissa_bits) + rounded;
  return sign | (code < to.overflow_code ? code : to.overflow_code);
}

/// The finite value with this sign, biased exponent and mantissa; exact in fp32 for all our
/// formats.
LODE_ALWAYS_INLINE float decode_minifloat(const Minifloat& from, std::uint32_t code) noexcept {
  const std::uint32_t magnitude = code & (from.sign_bit - 1u);
  const std::uint32_t mantissa = magnitude & ((1u << from.mantissa_bits) - 1u);
  const auto exponent = static_cast<int>(magnitude >> from.mantissa_bits);
  const int unit_exponent = (exponent > 0 ? exponent : 1) - from.bias - from.mantissa_bits;
  const auto unit_bits = static_cast<std::uint32_t>(unit_exponent + 127) << 23;
  const std::uint32_t whole = exponent > 0 ? mantissa | (1u << from.mantissa_bits) : mantissa;
  const float value = static_cast<float>(whole) * __builtin_bit_cast(float, unit_bits);
  return (code & from.sign_bit) != 0 ? -value : value;
}

}  // namespace lode::formats
