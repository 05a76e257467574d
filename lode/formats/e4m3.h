#pragma once

#include <cstdint>

#include "lode/formats/minifloat.h"

namespace lode::formats {

inline constexpr Minifloat kE4m3Shape{3, 7, 0x7Eu, 0x7Fu, 0x80u};
inline constexpr float kE4m3Max = 448.0F;

struct E4m3Values {
  float of[256];
};

consteval E4m3Values make_e4m3_values() {
  E4m3Values values{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float nan = __builtin_bit_cast(float, 0x7FC00000u | ((code & 0x80u) << 24));
    values.of[code] = (code & 0x7Fu) == 0x7Fu ? nan : decode_minifloat(kE4m3Shape, code);
  }
  return values;
}

/// The value of every code of E4M3 ("FN": no infinity, 0x7F and 0xFF are NaN, the largest is 448).
/// Source: OCP 8-bit Floating Point Specification 1.0.
inline constexpr E4m3Values kE4m3Values = make_e4m3_values();

LODE_ALWAYS_INLINE float decode_e4m3(std::uint8_t code) noexcept { return kE4m3Values.of[code]; }

/// To nearest, ties to even, then saturating: infinities become 448 too. NaN stays NaN.
LODE_ALWAYS_INLINE std::uint8_t encode_e4m3(float value) noexcept {
  return static_cast<std::uint8_t>(encode_minifloat(kE4m3Shape, value));
}

}  // namespace lode::formats
