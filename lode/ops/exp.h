#pragma once

#include <cstdint>

namespace lode::ops {

/// e^x with the same bits on every machine and in every vector width: plain operations only. Within
/// 2 ulp; results below the smallest normal number are 0, above the largest infinity; NaN stays
/// NaN.
inline float exp(float x) noexcept {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693145752F;  // few bits, so that n * kLn2High is exact
  constexpr float kLn2Low = 1.42860677e-6F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  constexpr float kLargest = 88.7228390F;
  constexpr float kSmallest = -87.3365400F;
  const float inside = x > kLargest ? kLargest : (x > kSmallest ? x : kSmallest);
  const float n = (inside * kLog2E + kRound) - kRound;
  const float r = (inside - n * kLn2High) - n * kLn2Low;
  // The series of e^r up to r^7/7!; |r| <= ln(2)/2 leaves less than 1e-8.
  float series = 1.0F / 5040.0F;
  series = series * r + 1.0F / 720.0F;
  series = series * r + 1.0F / 120.0F;
  series = series * r + 1.0F / 24.0F;
  series = series * r + 1.0F / 6.0F;
  series = series * r + 0.5F;
  series = series * r * r + r + 1.0F;
  // 2^n in two factors: n may be 128, for which one exponent field has no room.
  const std::int32_t half = static_cast<std::int32_t>(n) / 2;
  const std::int32_t rest = static_cast<std::int32_t>(n) - half;
  const float low = __builtin_bit_cast(float, (half + 127) << 23);
  const float high = __builtin_bit_cast(float, (rest + 127) << 23);
  const float value = series * low * high;
  const float finite = x < kSmallest ? 0.0F : (x > kLargest ? __builtin_inff() : value);
  return x != x ? x : finite;
}

inline float sigmoid(float x) noexcept { return 1.0F / (1.0F + exp(-x)); }

}  // namespace lode::ops
