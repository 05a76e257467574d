#pragma once

#include <cstdint>

#include "lode/formats/f16.h"
#include "lode/formats/minifloat.h"

namespace lode::formats {

inline constexpr Minifloat kE5m2Shape{2, 15, 0x7Cu, 0x7Fu, 0x80u};

/// E5M2 is the upper byte of a binary16.
/// Source: OCP 8-bit Floating Point Specification 1.0.
LODE_ALWAYS_INLINE float decode_e5m2(std::uint8_t code) noexcept {
  return decode_f16(static_cast<std::uint16_t>(code << 8));
}

/// To nearest, ties to even; overflow becomes infinity, NaN the code 0x7F of its sign.
LODE_ALWAYS_INLINE std::uint8_t encode_e5m2(float value) noexcept {
  return static_cast<std::uint8_t>(encode_minifloat(kE5m2Shape, value));
}

}  // namespace lode::formats
