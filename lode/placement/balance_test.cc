#include "lode/placement/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lode/placement/test_golden.h"

namespace lode::placement {
namespace {

using testing::ElementsAre;

TEST(Balance, IsMeanOverMaximumAsTheGoldenCasesSay) {
  for (const json::Value& one : golden::cases("balancedness")) {
    const auto layers = golden::rows<double>(one, "tokens_per_layer_per_rank");
    std::vector<double> tokens;
    for (const auto& layer : layers) tokens.insert(tokens.end(), layer.begin(), layer.end());
    const Balance balance = balance_of_counts(tokens, layers.front().size());
    EXPECT_EQ(balance.mean, one.find("avg_tokens")->number());
    EXPECT_EQ(balance.max, one.find("max_tokens")->number());
    EXPECT_EQ(balance.balancedness(), one.find("balancedness")->number());
  }
}

// Layers of unlike load whose ranks are alike are perfect, and their order does not matter.
TEST(Balance, ComparesRanksAndNotLayers) {
  EXPECT_EQ(balance_of_counts(std::vector<double>{1, 1, 9, 9}, 2).balancedness(), 1.0);
  const double there = balance_of_counts(std::vector<double>{3, 1, 2, 4, 4, 4}, 3).balancedness();
  const double back = balance_of_counts(std::vector<double>{4, 4, 4, 3, 1, 2}, 3).balancedness();
  EXPECT_EQ(there, back);
}

TEST(Balance, AddsAWindowOfSlotsByExpertAsTheGoldenCaseDoes) {
  for (const json::Value& one : golden::cases("window_to_logical")) {
    const auto maps = golden::rows<std::int32_t>(one, "phy2log");
    const json::Array& passes = *one.find("window")->as_array();
    for (std::size_t layer = 0; layer < maps.size(); ++layer) {
      std::vector<std::int32_t> window;
      for (const json::Value& pass : passes) {
        const auto counts = golden::numbers<std::int32_t>(pass.as_array()->at(layer));
        window.insert(window.end(), counts.begin(), counts.end());
      }
      const auto map = ExpertMap::make(maps[layer], golden::size(one, "num_logical"), 1);
      ASSERT_TRUE(map);
      EXPECT_EQ(logical_counts(window, *map),
                golden::rows<std::int64_t>(one, "logical_load_this_rank")[layer]);
    }
  }
}

TEST(Balance, LeavesEmptySlotsOut) {
  const auto map = ExpertMap::make({0, kNoExpert, 1, 0}, 2, 2);
  ASSERT_TRUE(map);
  EXPECT_THAT(logical_counts(std::vector<std::int32_t>{1, 50, 2, 4, 1, 50, 2, 4}, *map),
              ElementsAre(10, 4));
  EXPECT_THAT(rank_loads(*map, std::vector<float>{10, 3}), ElementsAre(5, 8));
}

TEST(Balance, DoesNotDependOnTheOrderOfRanksAndSlots) {
  const std::vector<float> load{0.1F, 0.7F, 1e-8F, 3e7F};
  const auto one = ExpertMap::make({0, 1, 2, 3, 0, 1}, 4, 2);
  const auto other = ExpertMap::make({1, 0, 3, 2, 1, 0}, 4, 2);
  ASSERT_TRUE(one && other);
  const auto a = rank_loads(*one, load);
  const auto b = rank_loads(*other, load);
  EXPECT_EQ(a[0], b[1]);
  EXPECT_EQ(a[1], b[0]);
}

TEST(Balance, TakesABrokenLoadForNoneOrForTheLargest) {
  EXPECT_EQ(usable_load(std::nanf("")), 0.0F);
  EXPECT_EQ(usable_load(-3.0F), 0.0F);
  EXPECT_EQ(usable_load(INFINITY), std::numeric_limits<float>::max());
  EXPECT_EQ(usable_load(2.5F), 2.5F);
}

}  // namespace
}  // namespace lode::placement
