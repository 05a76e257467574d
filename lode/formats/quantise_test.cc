#include "lode/formats/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lode/formats/dequantise.h"
#include "lode/formats/test_golden_reader.h"

namespace lode::formats {
namespace {

struct Case {
  Rule rule;
  Format weights;

  std::string name() const {
    return std::string(info(rule).name) + (weights == Format::kBf16 ? "_bf16" : "_f32");
  }
};

std::vector<float> floats(const std::vector<std::byte>& bytes, Format format) {
  std::vector<float> out(bytes.size() / (info(format).bits / 8));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = number_at(format, bytes, i);
  return out;
}

void expect_same(const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  ASSERT_EQ(got.size(), want.size());
  std::size_t differing = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (++differing <= 5) {
      ADD_FAILURE() << "byte " << i << ": " << static_cast<int>(got[i]) << ", producer wrote "
                    << static_cast<int>(want[i]);
    }
  }
  EXPECT_EQ(differing, 0U) << "of " << got.size();
}

class Producer : public testing::TestWithParam<Case> {};

TEST_P(Producer, WritesTheseBytes) {
  const auto& [rule, weights] = GetParam();
  const bool blocks = info(rule).encoding.block_rows == 128;
  const std::string inputs = golden::read_file("quantisers/inputs.safetensors");
  const std::string which =
      std::string(blocks ? "block_" : "rows_") + (weights == Format::kBf16 ? "bf16" : "f32");
  const auto values = floats(golden::tensor_bytes(inputs, which), Format::kF32);
  const std::uint64_t k = blocks ? 144 : 64;
  const auto got = quantise({rule, values, values.size() / k, k, weights, {}});
  ASSERT_TRUE(got.has_value()) << to_string(got.error());

  const std::string want = golden::read_file("quantisers/" + GetParam().name() + ".safetensors");
  expect_same(got->codes, golden::tensor_bytes(want, "codes"));
  expect_same(got->scales, golden::tensor_bytes(want, "scales"));
  if (got->encoding.tensor_scale != TensorScale::kNone) {
    const bool divisor = got->encoding.tensor_scale == TensorScale::kDivisor;
    const auto scale = golden::tensor_bytes(want, divisor ? "global_scale" : "scale_2");
    EXPECT_EQ(got->tensor_scale, floats(scale, Format::kF32)[0]);
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const RuleInfo& row : rule_table()) {
    cases.push_back({row.rule, Format::kF32});
    cases.push_back({row.rule, Format::kBf16});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Golden, Producer, testing::ValuesIn(all_cases()),
                         [](const auto& parameter) { return parameter.param.name(); });

TEST(Rule, EveryNameLeadsBackToItsRow) {
  for (const RuleInfo& row : rule_table()) EXPECT_EQ(rule_by_name(row.name), row.rule);
  EXPECT_FALSE(rule_by_name("nvfp5").has_value());
}

// checkpoints_models 5.2.
TEST(Quantise, TheRampOfTheSpecificationHasItsBytes) {
  std::vector<float> ramp(32);
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    ramp[i] = 0.1F * static_cast<float>(i) - 1.5F;
  }
  const auto got = quantise({Rule::kModeloptNvfp4, ramp, 1, 32, Format::kF32, {}});
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->scales, (std::vector{std::byte{0x7D}, std::byte{0x7E}}));
  const unsigned char packed[] = {0xFF, 0xEF, 0xEE, 0xDE, 0xCD, 0xBC, 0xAA, 0x09,
                                  0x21, 0x32, 0x44, 0x55, 0x65, 0x66, 0x76, 0x77};
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(static_cast<unsigned>(got->codes[i]), packed[i]) << i;
  }
  EXPECT_FLOAT_EQ(got->tensor_scale, 5.95238e-4F);
}

TEST(Quantise, SlicesOfRowsGiveTheWholeIfTheyKnowItsLargest) {
  std::vector<float> values(4 * 32);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const auto whole = quantise({Rule::kModeloptNvfp4, values, 4, 32, Format::kF32, {}});
  const auto half = quantise({Rule::kModeloptNvfp4, std::span(values).subspan(64), 2, 32,
                              Format::kF32, largest_magnitude(values)});
  ASSERT_TRUE(whole.has_value() && half.has_value());
  EXPECT_EQ(half->codes, std::vector(whole->codes.begin() + 32, whole->codes.end()));
  EXPECT_EQ(half->scales, std::vector(whole->scales.begin() + 4, whole->scales.end()));
  EXPECT_EQ(half->tensor_scale, whole->tensor_scale);
}

TEST(Quantise, AMatrixOfZerosIsZerosUnderEveryRule) {
  const std::vector<float> zeros(128 * 128);
  std::vector<float> row(128, 1.0F);
  for (const RuleInfo& rule : rule_table()) {
    const auto got = quantise({rule.rule, zeros, 128, 128, Format::kBf16, {}});
    ASSERT_TRUE(got.has_value()) << rule.name;
    const EncodedMatrix matrix{got->encoding, 128, 128, got->codes, got->scales, got->tensor_scale};
    ASSERT_TRUE(check_matrix(matrix).has_value()) << rule.name;
    dequantise_row(matrix, 77, row);
    for (const float value : row) EXPECT_EQ(value, 0.0F) << rule.name;
  }
}

TEST(Quantise, RefusesNanAndInfinity) {
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> values(32, 1.0F);
    values[7] = bad;
    const auto got = quantise({Rule::kOcpMxfp4Floor, values, 1, 32, Format::kF32, {}});
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Code::kInvalidSource);
  }
}

TEST(Quantise, RefusesRowsThatBlocksDoNotDivide) {
  const std::vector<float> values(24);
  const auto got = quantise({Rule::kModeloptNvfp4, values, 1, 24, Format::kF32, {}});
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, Code::kUnsupported);
}

TEST(Quantise, RefusesWeightsOfOtherFormats) {
  const std::vector<float> values(32);
  const auto got = quantise({Rule::kModeloptNvfp4, values, 1, 32, Format::kF16, {}});
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, Code::kUnsupported);
}

TEST(Quantise, RefusesValuesThatAreNotRowsTimesK) {
  const std::vector<float> values(32);
  const auto got = quantise({Rule::kModeloptNvfp4, values, 2, 32, Format::kF32, {}});
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, Code::kInvalidSource);
}

}  // namespace
}  // namespace lode::formats
