#pragma once

#include <cstdint>

#include "lode/formats/minifloat.h"

namespace lode::formats {

inline constexpr Minifloat kF16Shape{10, 15, 0x7C00u, 0x7E00u, 0x8000u};

/// Source: IEEE 754-2019 binary16.
LODE_ALWAYS_INLINE float decode_f16(std::uint16_t code) noexcept {
  if ((code & 0x7C00u) != 0x7C00u) return decode_minifloat(kF16Shape, code);
  const std::uint32_t sign = (code & 0x8000u) << 16;
  return __builtin_bit_cast(float, sign | 0x7F800000u | ((code & 0x3FFu) << 13));
}

/// To nearest, ties to even; overflow becomes infinity, NaN the quiet NaN of its sign.
LODE_ALWAYS_INLINE std::uint16_t encode_f16(float value) noexcept {
  return static_cast<std::uint16_t>(encode_minifloat(kF16Shape, value));
}

}  // namespace lode::formats
