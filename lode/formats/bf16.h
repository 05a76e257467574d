#pragma once

#include <cstdint>

#include "lode/formats/minifloat.h"

namespace lode::formats {

/// BF16: the upper half of an fp32.
/// Source: the format has no standard; Intel "BFLOAT16 Hardware Numerics Definition" 1.0.
LODE_ALWAYS_INLINE float decode_bf16(std::uint16_t code) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
}

/// To nearest, ties to even; overflow becomes infinity, NaN stays a quiet NaN of its sign.
LODE_ALWAYS_INLINE std::uint16_t encode_bf16(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// `value` rounded to BF16 and back.
LODE_ALWAYS_INLINE float round_to_bf16(float value) noexcept {
  return decode_bf16(encode_bf16(value));
}

}  // namespace lode::formats
