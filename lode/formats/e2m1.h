#pragma once

#include <cstdint>

#include "lode/formats/minifloat.h"

namespace lode::formats {

/// The sixteen values of an E2M1 (FP4) code: no infinity, no NaN; code 8 is -0.
/// Source: OCP Microscaling Formats 1.0, 5.3.3.
inline constexpr float kE2m1Values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                          -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// The value of the low four bits of `code`.
LODE_ALWAYS_INLINE float decode_e2m1(std::uint8_t code) noexcept { return kE2m1Values[code & 0xF]; }

/// To nearest, ties to even, saturating at 6; the sign is kept, also on zeros. NaN becomes a zero:
/// E2M1 has no better code, whoever may meet NaN must look before.
LODE_ALWAYS_INLINE std::uint8_t encode_e2m1(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const float magnitude = __builtin_bit_cast(float, bits & 0x7FFFFFFFu);
  const int code = static_cast<int>(magnitude > 0.25F) + static_cast<int>(magnitude >= 0.75F) +
                   static_cast<int>(magnitude > 1.25F) + static_cast<int>(magnitude >= 1.75F) +
                   static_cast<int>(magnitude > 2.5F) + static_cast<int>(magnitude >= 3.5F) +
                   static_cast<int>(magnitude > 5.0F);
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(code) | ((bits >> 31) << 3));
}

/// Two codes lie in a byte: element 2j low, element 2j+1 high, in every checkpoint dialect we know.
LODE_ALWAYS_INLINE std::uint8_t low_nibble(std::uint8_t byte) noexcept {
  return static_cast<std::uint8_t>(byte & 0xFu);
}
LODE_ALWAYS_INLINE std::uint8_t high_nibble(std::uint8_t byte) noexcept {
  return static_cast<std::uint8_t>(byte >> 4);
}
LODE_ALWAYS_INLINE std::uint8_t nibble_pair(std::uint8_t low, std::uint8_t high) noexcept {
  return static_cast<std::uint8_t>((low & 0xFu) | ((high & 0xFu) << 4));
}

}  // namespace lode::formats
