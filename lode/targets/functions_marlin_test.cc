// The Marlin functions against what the engines' own code made, and what they refuse.
#include "lode/targets/functions_marlin.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lode/targets/test_golden_functions.h"

namespace lode::targets {
namespace {

TEST(MarlinFunctions, EqualEveryGoldenCaseInAllWays) {
  EXPECT_EQ(testing::check_cases(marlin_functions()), 13U);
  EXPECT_EQ(testing::check_cases(marlin_scale_functions()), 9U);
  EXPECT_EQ(testing::check_cases(marlin_expert_functions()), 20U);
  EXPECT_EQ(testing::check_cases(marlin_dense_functions()), 7U);
}

TEST(MarlinFunctions, StandForEveryCaseOfTheMarlinFiles) {
  const json::Value manifest = testing::read_manifest();
  for (const json::Value& one : *manifest.find("cases")->as_array()) {
    const std::string function = testing::text_of(one, "function");
    if (function.starts_with("marlin_utils")) {
      EXPECT_NE(function_by_name(function), nullptr) << function;
    }
  }
}

}  // namespace
}  // namespace lode::targets
