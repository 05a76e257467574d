#include "lode/placement/spread.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "lode/placement/test_random_maps.h"

namespace lode::placement {
namespace {

// An expert lies twice on a rank only where slots are more than experts times ranks, or where
// placing largest first has left no other rank; the second is rare and must not be the rule.
RC_GTEST_PROP(SpreadPolicy, FillsEverySlotAndHoldsEveryExpert, ()) {
  const RandomShape sizes = random_shape();
  std::vector<float> load;
  for (std::size_t e = 0; e < sizes.experts; ++e)
    load.push_back(static_cast<float>(*rc::gen::inRange(0, 100)));
  SpreadPlanner planner(sizes.experts, sizes.shape);
  std::vector<std::int32_t> map(sizes.shape.slots, -1);
  planner.plan_layer(load, map);
  RC_ASSERT(std::ranges::find(map, -1) == map.end());
  for (std::size_t e = 0; e < sizes.experts; ++e)
    RC_ASSERT(std::ranges::find(map, static_cast<std::int32_t>(e)) != map.end());
}

// One hot expert, four ranks: its four replicas lie on four ranks.
TEST(SpreadPolicy, HoldsAnExpertOnceARank) {
  SpreadPlanner planner(8, {.slots = 12, .ranks = 4});
  std::vector<std::int32_t> map(12);
  planner.plan_layer(std::vector<float>{1000, 1, 2, 3, 4, 5, 6, 8}, map);
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(std::count(map.begin() + static_cast<std::ptrdiff_t>(rank * 3),
                         map.begin() + static_cast<std::ptrdiff_t>(rank * 3 + 3), 0),
              1);
}

// Largest first gives {7, 4, 4} and {6, 5} where {7, 6} and {5, 4, 4} is even: loads 7 6 5 4 4 0.
TEST(SpreadPolicy, SwapsWhereLargestFirstIsUneven) {
  SpreadPlanner planner(6, {.slots = 6, .ranks = 2});
  std::vector<std::int32_t> map(6);
  const std::vector<float> load{7, 6, 5, 4, 4, 0};
  planner.plan_layer(load, map);
  float first = 0;
  for (std::size_t slot = 0; slot < 3; ++slot) first += load[static_cast<std::size_t>(map[slot])];
  EXPECT_EQ(first, 13);
}

}  // namespace
}  // namespace lode::placement
