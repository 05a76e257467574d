#pragma once

#include <cstdint>

namespace lode::ops {

/// e^x with the same bits on every machine and in every vector width: plain operations only, no
/// branch, so that loops over it become vectors. Within 2 ulp down to the smallest normal number,
/// below it within the spacing of the subnormal ones; infinity above the largest; NaN stays NaN.
inline float exp(float x) noexcept {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693145752F;  // few bits, so that n * kLn2High is exact
  constexpr float kLn2Low = 1.42860677e-6F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  constexpr auto kRoundBits = __builtin_bit_cast(std::uint32_t, kRound);
  // Beyond -104 and 89 the products below underflow to 0 and overflow to infinity by themselves.
  // The ends are set on the bits, for a choice between floats would be a branch; NaN passes.
  constexpr auto kLowestBits = __builtin_bit_cast(std::int32_t, 104.0F);
  constexpr auto kHighestBits = __builtin_bit_cast(std::int32_t, 89.0F);
  constexpr std::int32_t kInfinityBits = 0x7F800000;
  const auto bits = __builtin_bit_cast(std::int32_t, x);
  const std::int32_t magnitude = bits & 0x7FFFFFFF;
  const std::int32_t end = bits < 0 ? kLowestBits : kHighestBits;
  const std::int32_t nearer = magnitude > end ? end : magnitude;
  const std::int32_t kept = magnitude > kInfinityBits ? magnitude : nearer;
  const float inside = __builtin_bit_cast(float, kept | (bits & ~0x7FFFFFFF));
  const float shifted = inside * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (inside - n * kLn2High) - n * kLn2Low;
  // The series of e^r up to r^7/7!; |r| <= ln(2)/2 leaves less than 1e-8.
  float series = 1.0F / 5040.0F;
  series = series * r + 1.0F / 720.0F;
  series = series * r + 1.0F / 120.0F;
  series = series * r + 1.0F / 24.0F;
  series = series * r + 1.0F / 6.0F;
  series = series * r + 0.5F;
  series = series * r * r + r + 1.0F;
  // 2^n in two factors, for n goes from -150 to 128; the low bits of `shifted` are n itself.
  const auto whole =
      static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, shifted) - kRoundBits);
  const std::int32_t half = whole >> 1;
  const float low = __builtin_bit_cast(float, static_cast<std::uint32_t>(half + 127) << 23);
  const float high =
      __builtin_bit_cast(float, static_cast<std::uint32_t>(whole - half + 127) << 23);
  return series * low * high;
}

inline float sigmoid(float x) noexcept { return 1.0F / (1.0F + exp(-x)); }

}  // namespace lode::ops
