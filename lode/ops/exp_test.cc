#include "lode/ops/exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lode::ops {
namespace {

TEST(Exp, IsWithinTwoUnitsOfTheLastPlaceOfLibm) {
  for (double x = -87.3; x < 88.7; x += 0.00137) {
    const auto argument = static_cast<float>(x);
    const double want = std::exp(static_cast<double>(argument));
    const double unit = std::ldexp(1.0, std::ilogb(want) - 23);
    ASSERT_NEAR(static_cast<double>(exp(argument)), want, 2.0 * unit) << argument;
  }
}

TEST(Exp, GoesDownThroughTheSubnormalNumbers) {
  const double spacing = std::ldexp(1.0, -149);
  for (double x = -103.9; x < -87.4; x += 0.011) {
    const auto argument = static_cast<float>(x);
    const double want = std::exp(static_cast<double>(argument));
    ASSERT_NEAR(static_cast<double>(exp(argument)), want, spacing + want * 3e-7) << argument;
  }
}

TEST(Exp, IsExactAtZeroAndEndsWhereFloatEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp(0.0F), 1.0F);
  EXPECT_EQ(exp(-0.0F), 1.0F);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_EQ(exp(89.0F), kInfinity);
  EXPECT_EQ(exp(-kInfinity), 0.0F);
  EXPECT_EQ(exp(-105.0F), 0.0F);
  EXPECT_EQ(exp(-1e30F), 0.0F);
  EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Sigmoid, GoesFromZeroToOne) {
  EXPECT_EQ(sigmoid(0.0F), 0.5F);
  EXPECT_EQ(sigmoid(200.0F), 1.0F);
  EXPECT_EQ(sigmoid(-200.0F), 0.0F);
}

}  // namespace
}  // namespace lode::ops
