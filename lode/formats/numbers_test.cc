#include <gtest/gtest.h>

#include <cmath>

#include "lode/formats/bf16.h"
#include "lode/formats/block_scale.h"
#include "lode/formats/e2m1.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/e5m2.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/f16.h"
#include "lode/formats/test_golden_reader.h"

namespace lode::formats {
namespace {

using golden::behind;

const std::string& golden_text() {
  static const std::string text = golden::read_file("number_formats.json");
  return text;
}

float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
std::uint32_t to_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }

template <class Decode>
void expect_decodes(std::string_view format, Decode decode) {
  const auto want = golden::hex_list(behind(golden_text(), {"decode", format, "float32_hex"}));
  ASSERT_FALSE(want.empty());
  for (std::size_t code = 0; code < want.size(); ++code) {
    const float got = decode(code);
    if (std::isnan(from_bits(want[code]))) {
      EXPECT_TRUE(std::isnan(got)) << format << " code " << code;
    } else {
      EXPECT_EQ(to_bits(got), want[code]) << format << " code " << code;
    }
  }
}

/// Compares with the column `law` of the golden encodings; `ours(value, want)` may overrule it.
template <class Encode, class Ours>
void expect_encodes(std::string_view format, std::string_view law, Encode encode, Ours ours) {
  const auto input = golden::hex_list(behind(golden_text(), {"encode", format, "input_hex"}));
  const auto want = golden::integer_list(behind(golden_text(), {"encode", format, law}));
  ASSERT_EQ(input.size(), want.size());
  for (std::size_t i = 0; i < input.size(); ++i) {
    const float value = from_bits(input[i]);
    EXPECT_EQ(static_cast<std::uint32_t>(encode(value)), ours(value, want[i]))
        << format << " of " << value;
  }
}

constexpr auto kNoRule = [](float, std::uint32_t want) { return want; };

TEST(Numbers, EveryCodeDecodesAsTorchAndMlDtypesDo) {
  expect_decodes("float8_e4m3fn",
                 [](std::size_t c) { return decode_e4m3(static_cast<std::uint8_t>(c)); });
  expect_decodes("float8_e5m2",
                 [](std::size_t c) { return decode_e5m2(static_cast<std::uint8_t>(c)); });
  expect_decodes("float8_e8m0fnu",
                 [](std::size_t c) { return decode_e8m0(static_cast<std::uint8_t>(c)); });
  expect_decodes("float4_e2m1fn",
                 [](std::size_t c) { return decode_e2m1(static_cast<std::uint8_t>(c)); });
}

// Torch saturates where ml_dtypes gives NaN; ours is torch's rule.
TEST(Numbers, E4m3RoundsToNearestEvenAndSaturatesEvenInfinity) {
  expect_encodes(
      "float8_e4m3fn", "torch", [](float x) { return encode_e4m3(x); }, kNoRule);
  EXPECT_EQ(encode_e4m3(from_bits(0xFFC00000U)), 0xFF);
}

TEST(Numbers, E4m3IsTheSameWhetherClampedFirstOrNot) {
  expect_encodes(
      "float8_e4m3fn", "torch_clamped_to_max", [](float x) { return encode_e4m3(x); }, kNoRule);
}

TEST(Numbers, E5m2OverflowsToInfinity) {
  expect_encodes(
      "float8_e5m2", "torch", [](float x) { return encode_e5m2(x); }, kNoRule);
  const auto clamped = [](float value) {
    return encode_e5m2(std::isnan(value) ? value : std::fmin(std::fmax(value, -57344.F), 57344.F));
  };
  expect_encodes("float8_e5m2", "torch_clamped_to_max", clamped, kNoRule);
}

TEST(Numbers, E2m1KeepsTheSignAndSaturates) {
  const auto keep_nan = [](float value, std::uint32_t want) {
    return std::isnan(value) ? static_cast<std::uint32_t>(encode_e2m1(value)) : want;
  };
  expect_encodes(
      "float4_e2m1fn", "ml_dtypes", [](float x) { return encode_e2m1(x); }, keep_nan);
}

TEST(Numbers, E2m1TiesGoToTheEvenCode) {
  const float inputs[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, 7.0F};
  const float wanted[] = {0.F, 1.F, 1.F, 2.F, 2.F, 4.F, 4.F, 6.F};
  for (std::size_t i = 0; i < std::size(inputs); ++i) {
    EXPECT_EQ(decode_e2m1(encode_e2m1(inputs[i])), wanted[i]);
    EXPECT_EQ(decode_e2m1(encode_e2m1(-inputs[i])), -wanted[i]);
  }
}

// Torch drops the sign of negatives, ml_dtypes makes zeros NaN: ours keeps a zero and refuses
// signs.
TEST(Numbers, E8m0IsTheNearestPowerOfTwoAndHasNoSign) {
  const auto ours = [](float value, std::uint32_t want) {
    return value < 0.0F ? std::uint32_t{kE8m0Nan} : want;
  };
  expect_encodes(
      "float8_e8m0fnu", "torch", [](float x) { return encode_e8m0(x); }, ours);
}

TEST(Numbers, Bf16RoundsToNearestEvenAndKeepsNan) {
  const auto quiet = [](float value, std::uint32_t want) {
    return std::isnan(value) ? 0x7FC0U : want;
  };
  expect_encodes(
      "bfloat16", "torch", [](float x) { return encode_bf16(x); }, quiet);
  EXPECT_EQ(encode_bf16(from_bits(0x7F800001U)), 0x7FC0);  // a payload in the lower half only
}

TEST(Numbers, F16RoundsToNearestEven) {
  expect_encodes(
      "float16", "torch", [](float x) { return encode_f16(x); }, kNoRule);
}

TEST(Numbers, EveryF16AndBf16SurvivesDecodingAndEncoding) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    if (!std::isnan(decode_f16(bits))) {
      EXPECT_EQ(encode_f16(decode_f16(bits)), bits);
    }
    if (!std::isnan(decode_bf16(bits))) {
      EXPECT_EQ(encode_bf16(decode_bf16(bits)), bits);
    }
  }
}

TEST(Numbers, F16HasTheValuesOfBinary16) {
  EXPECT_EQ(decode_f16(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(decode_f16(0x03FF), std::ldexp(1023.0F, -24));
  EXPECT_EQ(decode_f16(0x3C01), 1.0009765625F);
  EXPECT_EQ(decode_f16(0xFBFF), -65504.0F);
  EXPECT_TRUE(std::isinf(decode_f16(0x7C00)));
  EXPECT_TRUE(std::isnan(decode_f16(0x7C01)));
}

// Values from checkpoints_models 2.1.
TEST(Numbers, E4m3HasItsLandmarks) {
  EXPECT_EQ(decode_e4m3(0x01), 0.001953125F);
  EXPECT_EQ(decode_e4m3(0x07), 0.013671875F);
  EXPECT_EQ(decode_e4m3(0x08), 0.015625F);
  EXPECT_EQ(decode_e4m3(0x38), 1.0F);
  EXPECT_EQ(decode_e4m3(0x3F), 1.875F);
  EXPECT_EQ(decode_e4m3(0x7E), kE4m3Max);
  EXPECT_EQ(decode_e4m3(encode_e4m3(432.0F)), 448.0F);
  EXPECT_EQ(decode_e4m3(encode_e4m3(17.0F)), 16.0F);
  EXPECT_EQ(encode_e4m3(std::ldexp(1.0F, -10)), 0x00);
  EXPECT_EQ(encode_e4m3(std::ldexp(3.0F, -11)), 0x01);
}

TEST(Numbers, TheSmallestE8m0IsASubnormal) {
  EXPECT_EQ(decode_e8m0(0), std::ldexp(1.0F, -127));
  EXPECT_EQ(decode_e8m0(254), std::ldexp(1.0F, 127));
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
}

TEST(Numbers, TheBlockMultiplierIsFormedFirst) {
  EXPECT_EQ(nvfp4_multiplier(0x7D, 3.0F), 416.0F * 3.0F);
  EXPECT_EQ(nvfp4_divided_multiplier(0x7D, 3.0F), 416.0F / 3.0F);
  EXPECT_EQ(mx_multiplier(126), 0.5F);
}

}  // namespace
}  // namespace lode::formats
