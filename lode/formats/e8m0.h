#pragma once

#include <cstdint>

#include "lode/formats/minifloat.h"

namespace lode::formats {

inline constexpr std::uint8_t kE8m0Nan = 255;

/// 2^(code - 127); 255 is NaN. Code 0 is a subnormal fp32, which an exponent field cannot hold and
/// which flush-to-zero arithmetic loses.
/// Source: OCP Microscaling Formats 1.0, 5.4.
LODE_ALWAYS_INLINE float decode_e8m0(std::uint8_t code) noexcept {
  const std::uint32_t bits = code == 0          ? 0x00400000u
                             : code == kE8m0Nan ? 0x7FC00000u
                                                : static_cast<std::uint32_t>(code) << 23;
  return __builtin_bit_cast(float, bits);
}

/// The nearest power of two (in value, not in exponent), upwards in the middle; zero becomes the
/// smallest one. NaN and what is negative become NaN, for there is no sign; so does what rounds
/// above 2^127.
LODE_ALWAYS_INLINE std::uint8_t encode_e8m0(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if (bits == 0x80000000u) return 0;
  if ((bits >> 31) != 0 || bits > 0x7F800000u) return kE8m0Nan;
  const std::uint32_t exponent = bits >> 23;
  const std::uint32_t middle = exponent == 0 ? 0x600000u : 0x400000u;
  const std::uint32_t up = (bits & 0x7FFFFFu) >= middle ? 1u : 0u;
  return static_cast<std::uint8_t>(exponent + up);
}

}  // namespace lode::formats
