#include "lode/layout/nvfp4_reconcile.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace lode::layout {
namespace {

TEST(CommonScale, ChangesNoBitOfEqualScales) {
  const CommonScale common = common_scale(0.375F, 0.375F);
  EXPECT_EQ(common.scale, 0.375F);
  EXPECT_FALSE(common.rounds());
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(rescaled_e4m3(static_cast<std::uint8_t>(code), common.gate_ratio), code);
  }
}

TEST(CommonScale, IsTheLargerOneWhicheverHalfHasIt) {
  EXPECT_EQ(common_scale(0.5F, 2.0F).scale, 2.0F);
  EXPECT_EQ(common_scale(0.5F, 2.0F).ratio(0), 0.25F);
  EXPECT_EQ(common_scale(0.5F, 2.0F).ratio(1), 1.0F);
  EXPECT_EQ(common_scale(2.0F, 0.5F).scale, 2.0F);
  EXPECT_EQ(common_scale(2.0F, 0.5F).ratio(0), 1.0F);
  EXPECT_EQ(common_scale(2.0F, 0.5F).ratio(1), 0.25F);
}

// 0x38 is 1.0, 0x28 is 0.25 (exact); 0x39 is 1.125: a quarter of it is exact too, 3/8 of it
// (0.421875) lies between 0.40625 (0x2D) and 0.4375 (0x2E) and ties to the even code.
TEST(CommonScale, RoundsTheOtherHalfOnceToTheNearestE4m3) {
  EXPECT_EQ(rescaled_e4m3(0x38, 0.25F), 0x28);
  EXPECT_EQ(rescaled_e4m3(0x39, 0.25F), 0x29);
  EXPECT_EQ(rescaled_e4m3(0x39, 0.375F), 0x2E);
  EXPECT_EQ(rescaled_e4m3(0x01, 0.25F), 0x00);  // below half of the smallest
  EXPECT_EQ(rescaled_e4m3(0x80, 0.25F), 0x80);  // -0
  EXPECT_EQ(rescaled_e4m3(0x7F, 0.25F), 0x7F);  // NaN stays seen
}

// Field report 46's test: up 3.7 times gate.
TEST(CommonScale, StaysWithinHalfAStepOfEachBlockScale) {
  const float gate = 0.0117F;
  const CommonScale common = common_scale(gate, 3.7F * gate);
  ASSERT_TRUE(common.rounds());
  for (std::uint8_t code = 0x20; code < 0x7F; ++code) {  // the quotient stays a normal number
    const float exact = formats::decode_e4m3(code) * common.gate_ratio;
    const float near = formats::decode_e4m3(rescaled_e4m3(code, common.gate_ratio));
    EXPECT_LE(std::fabs(near - exact), exact / 16.0F) << unsigned{code};
  }
}

TEST(CommonScale, GoesThroughARowWhereItLies) {
  std::array<std::byte, 3> row{std::byte{0x38}, std::byte{0x00}, std::byte{0x40}};
  rescale_e4m3(0.5F, row);
  EXPECT_EQ(row, (std::array<std::byte, 3>{std::byte{0x30}, std::byte{0x00}, std::byte{0x38}}));
}

}  // namespace
}  // namespace lode::layout
