#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/targets/test_golden_functions.h"

namespace lode::targets {
namespace {

TEST(FlashinferFunctions, MakeWhatTheEnginesCodeComputedInEveryWay) {
  EXPECT_EQ(testing::check_cases(flashinfer_functions()), 37U);
}

TEST(FlashinferParts, MakeWhatTheEnginesCodeComputedInEveryWay) {
  EXPECT_EQ(testing::check_cases(flashinfer_part_functions()), 6U);
}

}  // namespace
}  // namespace lode::targets
