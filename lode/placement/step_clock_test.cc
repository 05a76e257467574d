#include "lode/placement/step_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "lode/placement/test_golden.h"

namespace lode::placement {
namespace {

TEST(StepClock, RebalancesAndRecordsWhenTheGoldenRunsDo) {
  for (const json::Value& one : golden::cases("step_clock_sync")) {
    StepClock clock(golden::integer(one, "step_interval"), golden::integer(one, "window_size"));
    EXPECT_EQ(clock.step(), golden::integer(one, "initial_step"));
    const json::Array& flags = *one.find("record_flag_per_forward")->as_array();
    std::vector<std::int64_t> rebalanced;
    for (std::size_t pass = 0; pass < flags.size(); ++pass) {
      EXPECT_EQ(clock.recording(), *flags[pass].as_bool()) << "pass " << pass;
      if (clock.after_pass()) rebalanced.push_back(static_cast<std::int64_t>(pass));
    }
    EXPECT_EQ(rebalanced, golden::numbers<std::int64_t>(one, "rearrange_after_forward_index"));
  }
}

TEST(StepClock, WaitsForAMigrationThatIsStillBusy) {
  StepClock clock(4, 1);
  EXPECT_FALSE(clock.after_pass(true));
  EXPECT_FALSE(clock.after_pass(true));
  EXPECT_EQ(clock.step(), 5);
  EXPECT_TRUE(clock.recording());
  EXPECT_TRUE(clock.after_pass(false));
  EXPECT_EQ(clock.step(), 0);
}

TEST(StepClock, TakesNoIntervalForOne) {
  StepClock clock(0, -5);
  EXPECT_TRUE(clock.after_pass());
  EXPECT_TRUE(clock.after_pass());
}

}  // namespace
}  // namespace lode::placement
