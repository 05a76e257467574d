#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "lode/formats/e2m1.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/format.h"

namespace lode::formats::pieces {

// Inside of online_quantise.cc: rows pass in pieces of 128 numbers. No branch depends on a number
// and all lengths are constants, so that compilers make vectors of the loops.
//
// Source: weight_layouts 3.1, 3.5; the codes are those of e4m3.h and e2m1.h, for all numbers.

inline constexpr std::uint64_t kPiece = 128;
using Raw = std::array<std::uint16_t, kPiece>;  // BF16 or F16; zeros behind the last number
using Floats = std::array<float, kPiece>;
using Codes = std::array<std::uint8_t, kPiece>;

/// Shapes: source [count] 16-bit numbers, count <= kPiece.
inline void load(const std::byte* source, std::uint64_t count, Raw& raw) noexcept {
  raw.fill(0);
  if (count > 0) std::memcpy(raw.data(), source, count * sizeof raw[0]);
}

/// The largest magnitude of `kCount` numbers as bits; above `infinity_bits` means NaN.
template <std::size_t kCount>
std::uint16_t largest_bits(const std::uint16_t* raw) noexcept {
  std::int16_t largest = 0;  // magnitudes have 15 bits: signed vectors have the faster maximum
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto magnitude = static_cast<std::int16_t>(raw[i] & 0x7FFF);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<std::uint16_t>(largest);
}

inline std::uint16_t infinity_bits(Format format) noexcept {
  return format == Format::kBf16 ? 0x7F80 : 0x7C00;
}

/// A finite BF16 or F16 number; of others only the sign.
LODE_ALWAYS_INLINE float widen_bf16(std::uint16_t raw) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(raw) << 16);
}
LODE_ALWAYS_INLINE float widen_f16(std::uint16_t raw) noexcept {
  // The exponent's bias is 112 less than fp32's. Exact, also for subnormals.
  const float magnitude =
      __builtin_bit_cast(float, static_cast<std::uint32_t>(raw & 0x7FFFU) << 13) * 0x1p112F;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, magnitude) |
                                       static_cast<std::uint32_t>(raw & 0x8000U) << 16);
}

inline void widen(Format format, const std::uint16_t* raw, Floats& values) noexcept {
  if (format == Format::kBf16) {
    for (std::size_t i = 0; i < kPiece; ++i) values[i] = widen_bf16(raw[i]);
  } else {
    for (std::size_t i = 0; i < kPiece; ++i) values[i] = widen_f16(raw[i]);
  }
}

/// As encode_e4m3_clamped.
LODE_ALWAYS_INLINE std::uint32_t e4m3_code(float value) noexcept {
  const float below = value < kE4m3Max ? value : kE4m3Max;  // NaN too
  const float clamped = below > -kE4m3Max ? below : -kE4m3Max;
  const auto bits = __builtin_bit_cast(std::uint32_t, clamped);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t normal =
      ((magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U)) >> 20) - (120U << 3);
  // Beside 2^14 a step of fp32 is 2^-9, the least of E4M3: the sum rounds as it should.
  const float sum = __builtin_bit_cast(float, magnitude) + 0x1p14F;
  const std::uint32_t subnormal =
      __builtin_bit_cast(std::uint32_t, sum) - __builtin_bit_cast(std::uint32_t, 0x1p14F);
  const std::uint32_t code = magnitude < 0x3C800000U ? subnormal : normal;
  return code | ((bits >> 24) & 0x80U);
}

/// As encode_e2m1, for what is no NaN.
LODE_ALWAYS_INLINE std::uint32_t e2m1_code(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t whole = bits & 0x7FFFFFFFU;
  const std::uint32_t magnitude = whole < 0x40C00000U ? whole : 0x40C00000U;  // 6
  const std::uint32_t normal =
      ((magnitude + 0x1FFFFFU + ((magnitude >> 22) & 1U)) >> 22) - (126U << 1);
  const float sum = __builtin_bit_cast(float, magnitude) + 0x1p22F;  // a step of it is 1/2
  const std::uint32_t subnormal =
      __builtin_bit_cast(std::uint32_t, sum) - __builtin_bit_cast(std::uint32_t, 0x1p22F);
  const std::uint32_t code = magnitude < 0x3F800000U ? subnormal : normal;
  return code | ((bits >> 28) & 8U);
}

/// How a number becomes a code: times a factor, or by a scale.
enum class Op : std::uint8_t { kE4m3Product, kE4m3Quotient, kE2m1Product };

/// A piece of finite numbers of `from`, BF16 or F16, each under its own factor. Codes of 4 bits lie
/// two in a byte, in the first half of `codes`; the bytes behind them mean nothing.
///
/// Shapes: raw, factors and codes [kPiece].
using EncodeFn = void (*)(Op op, Format from, const std::uint16_t* raw, const float* factors,
                          std::uint8_t* codes) noexcept;

/// The law of all that have the type EncodeFn.
inline void encode(Op op, Format from, const std::uint16_t* raw, const float* factors,
                   std::uint8_t* codes) noexcept {
  Floats values;
  widen(from, raw, values);
  for (std::size_t i = 0; i < kPiece; ++i) {
    const float scaled = op == Op::kE4m3Quotient ? values[i] / factors[i] : values[i] * factors[i];
    const std::uint32_t code = op == Op::kE2m1Product ? e2m1_code(scaled) : e4m3_code(scaled);
    codes[i] = static_cast<std::uint8_t>(code);
  }
  if (op != Op::kE2m1Product) return;
  for (std::size_t i = 0; i < kPiece / 2; ++i) {
    codes[i] = nibble_pair(codes[2 * i], codes[2 * i + 1]);
  }
}

}  // namespace lode::formats::pieces
