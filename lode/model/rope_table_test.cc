#include "lode/model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace lode::model {
namespace {

using families::RopeKind;
using families::RopeSpec;

RopeSpec gpt_oss() {
  RopeSpec spec;
  spec.kind = RopeKind::kYarn;
  spec.theta = 150000.0;
  spec.rotary_dim = 64;
  spec.factor = 32.0;
  spec.original_max_positions = 4096.0;
  spec.truncate = false;
  return spec;
}

// Nine digits, so half a unit of the ninth, and f32 has 24 bits.
void expect_frequency(const RopeTable& table, std::size_t index, double want) {
  EXPECT_NEAR(double{table.frequencies.at(index)}, want, want * (5e-9 + 6e-8)) << index;
}

// Source: spec checkpoints_models 3.1, "numbers to test".
TEST(RopeTable, OfGptOssIsYarnWithoutTruncation) {
  const RopeTable table = *make_rope_table(gpt_oss());
  const std::pair<std::size_t, double> want[] = {
      {8, 0.0508132748},   {9, 0.0317056962},   {12, 0.00679495949}, {16, 4.56483919e-4},
      {17, 1.29318701e-4}, {18, 3.83088124e-5}, {31, 3.02351143e-7}};
  for (const auto& [index, frequency] : want) expect_frequency(table, index, frequency);
  EXPECT_NEAR(double{table.magnitude}, 1.34657359, 1.2e-7);
}

// Source: the same.
TEST(RopeTable, OfDeepseekV3IsYarnWithTruncationAndEqualMscales) {
  RopeSpec spec;
  spec.kind = RopeKind::kYarn;
  spec.theta = 10000.0;
  spec.rotary_dim = 64;
  spec.factor = 40.0;
  spec.original_max_positions = 4096.0;
  spec.mscale = spec.mscale_all_dim = 1.0;
  const RopeTable table = *make_rope_table(spec);
  const std::pair<std::size_t, double> want[] = {{11, 0.0390069266},
                                                 {15, 0.00833450895},
                                                 {22, 1.77827941e-4},
                                                 {23, 3.33380358e-5},
                                                 {24, 2.5e-5}};
  for (const auto& [index, frequency] : want) expect_frequency(table, index, frequency);
  EXPECT_EQ(table.magnitude, 1.0F);
}

TEST(RopeTable, TakesAGivenAttentionFactor) {
  RopeSpec spec = gpt_oss();
  spec.attention_factor = 1.25;
  EXPECT_EQ(make_rope_table(spec)->magnitude, 1.25F);
}

TEST(RopeTable, DividesMscalesThatDiffer) {
  RopeSpec spec = gpt_oss();
  spec.mscale = 0.5;
  spec.mscale_all_dim = 2.0;
  const double log_factor = std::log(32.0);
  EXPECT_NEAR(double{make_rope_table(spec)->magnitude},
              (0.05 * log_factor + 1.0) / (0.2 * log_factor + 1.0), 1e-7);
}

TEST(RopeTable, OfPlainRopeIsAPowerOfTheta) {
  RopeSpec spec;
  spec.rotary_dim = 8;
  const RopeTable table = *make_rope_table(spec);
  ASSERT_EQ(table.frequencies.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    expect_frequency(table, i, std::pow(10.0, -static_cast<double>(i)));
  }
  EXPECT_EQ(table.magnitude, 1.0F);
  spec.kind = RopeKind::kLinear;
  spec.factor = 4.0;
  expect_frequency(*make_rope_table(spec), 1, 0.025);
}

// Wavelengths below 8192 / 4 stay, above 8192 / 1 are stretched 8 times, between them a blend.
TEST(RopeTable, OfLlama3BlendsBetweenItsBands) {
  RopeSpec spec;
  spec.kind = RopeKind::kLlama3;
  spec.theta = 10000.0;
  spec.rotary_dim = 8;
  spec.factor = 8.0;
  spec.original_max_positions = 8192.0;
  const RopeTable table = *make_rope_table(spec);
  expect_frequency(table, 2, 0.01);                        // wavelength 628
  const double rotations = 8192.0 * 0.001 / (2.0 * M_PI);  // 1.3038 of a wavelength of 6283
  const double blend = (rotations - 1.0) / 3.0;
  expect_frequency(table, 3, 0.001 * ((1.0 - blend) / 8.0 + blend));
  spec.original_max_positions = 4096.0;  // 0.652 rotations: beyond the low band
  expect_frequency(*make_rope_table(spec), 3, 0.001 / 8.0);
}

TEST(RopeTable, IsEmptyWithoutRope) {
  RopeSpec spec;
  spec.kind = RopeKind::kNone;
  EXPECT_TRUE(make_rope_table(spec)->frequencies.empty());
}

TEST(RopeTable, RefusesNumbersThatMakeNone) {
  RopeSpec spec = gpt_oss();
  spec.original_max_positions = 0.0;
  EXPECT_EQ(make_rope_table(spec).error().code, Code::kUnsupported);
  spec = gpt_oss();
  spec.rotary_dim = 63;
  EXPECT_FALSE(make_rope_table(spec));
  spec = gpt_oss();
  spec.theta = 1.0;
  EXPECT_FALSE(make_rope_table(spec));
}

}  // namespace
}  // namespace lode::model
