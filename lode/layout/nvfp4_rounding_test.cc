#include "lode/layout/nvfp4_rounding.h"

#include <gtest/gtest.h>

#include <vector>

namespace lode::layout {
namespace {

// Gate's row, then up's: 1, 1.5, 2^-9 (the smallest), NaN; the codes are those of the standard.
const std::vector<std::byte> kScales{std::byte{0x38}, std::byte{0x3C}, std::byte{0x01},
                                     std::byte{0x7F}, std::byte{0x38}, std::byte{0x3C},
                                     std::byte{0x01}, std::byte{0x7F}};

ScalesRounded counted(float gate, float up) {
  return count_rounded(common_scale(gate, up), rows_of(kScales, 2, 4));
}

TEST(Nvfp4Rounding, IsNothingWhereTheScalesAreEqual) {
  EXPECT_EQ(counted(0.25F, 0.25F), (ScalesRounded{8, 0, 0}));
}

TEST(Nvfp4Rounding, IsOnlyOfSubnormalScalesWhereTheRatioIsAPowerOfTwo) {
  // Half of 2^-9 lies between 0 and 2^-9 and goes to the even code, which is 0.
  EXPECT_EQ(counted(1.0F, 2.0F), (ScalesRounded{8, 1, 1}));
  EXPECT_EQ(counted(2.0F, 1.0F), (ScalesRounded{8, 1, 1}));
}

TEST(Nvfp4Rounding, CountsWhatTheMantissaDoesNotHold) {
  // By 2/3: 2/3 and 2^-9 * 2/3 are no codes, 1.5 * 2/3 is 1 but for the ratio's own rounding.
  const ScalesRounded third = counted(2.0F, 3.0F);
  EXPECT_EQ(third.seen, 8U);
  EXPECT_EQ(third.rounded, 3U);
  EXPECT_EQ(third.lost, 0U);
  // By 3/4: 0.75 is a code; 1.125 is one; 3/4 of the smallest is rounded up to it.
  EXPECT_EQ(counted(3.0F, 4.0F), (ScalesRounded{8, 1, 0}));
}

TEST(Nvfp4Rounding, AddsUp) {
  ScalesRounded all = counted(1.0F, 2.0F);
  all += counted(3.0F, 4.0F);
  EXPECT_EQ(all, (ScalesRounded{16, 2, 1}));
}

}  // namespace
}  // namespace lode::layout
