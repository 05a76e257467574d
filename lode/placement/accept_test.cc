#include "lode/placement/accept.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lode/placement/load_decay.h"

namespace lode::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Costs kCosts{.seconds_per_row = 0.25,
                   .bytes_per_second = 100,
                   .copy_bytes_per_second = 400,
                   .expert_bytes = 200};

// By hand: 40 rows less in the fullest ranks, 0.25 s a row, 10 steps: 100 s.
TEST(Acceptance, WantsMoreSavedThanMovingTakes) {
  const Verdict verdict = judge(100, 60, 99, kCosts, {.steps = 10});
  EXPECT_TRUE(verdict.accepted);
  EXPECT_EQ(verdict.saved_seconds, 100);
  EXPECT_EQ(verdict.transfer_seconds, 99);
  EXPECT_FALSE(judge(100, 60, 100, kCosts, {.steps = 10}).accepted);
  EXPECT_FALSE(judge(100, 60, 60, kCosts, {.steps = 10, .threshold = 2}).accepted);
}

TEST(Acceptance, NeverTakesAPlanThatSavesNothing) {
  EXPECT_FALSE(judge(60, 60, 0, kCosts, {.steps = 10}).accepted);
  EXPECT_FALSE(judge(60, 70, 0, kCosts, {.steps = 10, .threshold = 0}).accepted);
  EXPECT_FALSE(judge(100, 60, 0, kCosts, {.steps = -10}).accepted);
}

// Rank 1 receives two records of 200 bytes at 100 bytes a second and copies one at 400: 4.5 s.
TEST(Acceptance, TakesTheSlowestRankForTheTimeOfMoving) {
  std::vector<RankTransfer> plan(2);
  plan[0].sends = {{3, 0, 1}};
  plan[1].receives = {{3, 0, 0}, {4, 2, 1}};
  plan[1].duplicates = {{0, 2}};
  EXPECT_EQ(transfer_seconds(plan, kCosts), 4.5);
}

TEST(LoadDecay, HalvesACountInItsHalfLife) {
  const auto decay = decay_of_half_life(1);
  ASSERT_TRUE(decay);
  EXPECT_EQ(*decay, 0.5F);
  std::vector<float> sums{8, 0};
  decay_and_add(sums, std::vector<std::uint32_t>{1, 3}, *decay);
  EXPECT_THAT(sums, ElementsAre(5, 3));
}

TEST(LoadDecay, SumsPlainlyForever) {
  const auto decay = decay_of_half_life(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(decay);
  EXPECT_EQ(*decay, 1.0F);
  EXPECT_EQ(weight_of_steps(*decay, 7), 7);
}

// 1 + 1/2 + 1/4.
TEST(LoadDecay, WeighsStepsByWhatRemainsOfThem) { EXPECT_EQ(weight_of_steps(0.5F, 3), 1.75); }

TEST(LoadDecay, RefusesAHalfLifeThatIsNone) {
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    const auto decay = decay_of_half_life(bad);
    ASSERT_FALSE(decay);
    EXPECT_THAT(to_string(decay.error()), HasSubstr("half-life of the load"));
  }
}

}  // namespace
}  // namespace lode::placement
