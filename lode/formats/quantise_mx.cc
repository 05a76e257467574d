#include <algorithm>
#include <bit>
#include <cmath>

#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/quantise_parts.h"

namespace lode::formats {
namespace {

std::uint32_t bits_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value); }
int exponent_byte(float value) noexcept { return static_cast<int>(bits_of(value) >> 23); }

BlockScale power_of_two(int byte) noexcept {
  const auto code = static_cast<std::uint8_t>(std::clamp(byte, 0, 254));
  return {code, decode_e8m0(code)};
}

// Scales.

/// The exponent of amax less `e_max`; 0 and subnormals end at the smallest scale.
BlockScale floor_scale(float amax, int e_max) noexcept {
  return power_of_two(exponent_byte(amax) - e_max);
}

/// As floor_scale, one more where the mantissa would round to 2 in E2M1 (>= 1.75).
BlockScale even_scale(float amax, int e_max) noexcept {
  return power_of_two(static_cast<int>((bits_of(amax) + 0x200000U) >> 23) - e_max);
}

/// 2^ceil(log2(amax / largest)), the logarithm in fp32 as ModelOpt has it.
BlockScale log_scale(float amax, float largest) noexcept {
  const float exponent = std::ceil(std::max(std::log2(amax / largest), -127.0F));
  return power_of_two(static_cast<int>(exponent) + 127);
}

/// The power of two at or above (below) amax / largest, taken on the bits; the factor is the
/// reciprocal, 0 where there is none.
BlockScale bit_scale(float amax, float largest, bool up) noexcept {
  const std::uint32_t ceiling = up ? 0x7FFFFFU : 0U;
  const std::uint32_t bits = (bits_of(amax / largest) + ceiling) & 0x7F800000U;
  const float scale = std::bit_cast<float>(bits);
  return {bits >> 23, scale == 0.0F ? 0.0F : 1.0F / scale};
}

// Codes.

std::uint8_t nearest_even(float value, float scale) noexcept { return encode_e2m1(value / scale); }

/// compressed-tensors keeps the sign of negatives that round to zero, but not that of a -0.
std::uint8_t nearest_even_of_negatives(float value, float scale) noexcept {
  return value == 0.0F ? std::uint8_t{0} : nearest_even(value, scale);
}

std::uint8_t nearest_even_unsigned_zero(float value, float scale) noexcept {
  const std::uint8_t code = encode_e2m1(value / scale);
  return code == 8 ? std::uint8_t{0} : code;
}

/// ModelOpt: ties towards zero, and a sign on everything that is not above zero.
std::uint8_t ties_to_zero(float value, float scale) noexcept {
  const float x = std::fabs(value / scale);
  const int code =
      (x > 0.25F) + (x > 0.75F) + (x > 1.25F) + (x > 1.75F) + (x > 2.5F) + (x > 3.5F) + (x > 5.0F);
  return static_cast<std::uint8_t>(code | (value <= 0.0F ? 8 : 0));
}

/// Triton: ties away from zero, the sign kept.
std::uint8_t ties_away(float value, float reciprocal) noexcept {
  const float scaled = value * reciprocal;
  const float x = std::fabs(scaled);
  const int code = (x >= 0.25F) + (x >= 0.75F) + (x >= 1.25F) + (x >= 1.75F) + (x >= 2.5F) +
                   (x >= 3.5F) + (x >= 5.0F);
  return static_cast<std::uint8_t>(code | (std::signbit(scaled) ? 8 : 0));
}

std::uint8_t e4m3_quotient(float value, float scale) noexcept { return encode_e4m3(value / scale); }
std::uint8_t e4m3_product(float value, float factor) noexcept {
  return encode_e4m3(value * factor);
}

/// Quark stores 1 where the rule gives 0, but makes the codes with the scale of 0.
BlockScale quark_scale(float amax) noexcept {
  const BlockScale even = even_scale(amax, 2);
  return {std::max(even.stored, 1U), even.factor};
}

void triton(const QuantiseInput& input, Quantised& out) {
  const bool fp8 = out.encoding.element == Format::kE4m3;
  const bool up = input.rule != Rule::kTritonMxfp4RoundDown;
  const auto scale = [=](float amax) { return bit_scale(amax, fp8 ? 448.0F : 6.0F, up); };
  quantise_blocks(input, scale, fp8 ? e4m3_product : ties_away, out);
}

}  // namespace

void quantise_mx(const QuantiseInput& input, Quantised& out) {
  switch (input.rule) {
    case Rule::kModeloptMxfp4:
      return quantise_blocks(
          input, [](float amax) { return log_scale(amax, 6.0F); }, ties_to_zero, out);
    case Rule::kModeloptMxfp8:
      return quantise_blocks(
          input, [](float amax) { return log_scale(amax, 448.0F); }, e4m3_quotient, out);
    case Rule::kCtMxfp4:
      return quantise_blocks(
          input, [](float amax) { return even_scale(amax, 2); }, nearest_even_of_negatives, out);
    case Rule::kCtMxfp8:
      return quantise_blocks(
          input, [](float amax) { return even_scale(amax, 8); }, e4m3_quotient, out);
    case Rule::kOcpMxfp4Floor:
      return quantise_blocks(
          input, [](float amax) { return floor_scale(amax, 2); }, nearest_even, out);
    case Rule::kQuarkMxfp4:
      return quantise_blocks(input, quark_scale, nearest_even_unsigned_zero, out);
    default:
      return triton(input, out);
  }
}

}  // namespace lode::formats
