#include "lode/engine/load_speed.h"

#include <gtest/gtest.h>

#include "lode/base/bytes.h"
#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

LoadSpeed two_rounds() {
  LoadSpeed speed;
  speed.kinds = {{"raw", "", {{4'000, 2, 1}, {4'000, 4, 1}}},
                 {"cold", "", {{2'000, 2, 1}, {4'000, 4, 2}}},
                 {"warm", "", {}}};
  return speed;
}

TEST(LoadSpeed, ComparesRoundByRound) {
  EXPECT_EQ(two_rounds().ratios("cold", "raw"), (std::vector<double>{0.5, 1.0}));
  EXPECT_TRUE(two_rounds().ratios("warm", "raw").empty());
  EXPECT_TRUE(two_rounds().ratios("cold", "nothing").empty());
}

TEST(LoadSpeed, CountsBytesASecondAndSecondsOfProcessorsAGigabyte) {
  const Pass pass{3'000'000'000, 2'000'000, 600'000};
  EXPECT_DOUBLE_EQ(pass.bytes_per_second(), 1.5e9);
  EXPECT_DOUBLE_EQ(pass.cpu_seconds_per_gb(), 0.2);
}

TEST(LoadSpeed, MeasuresEveryKindInEveryRound) {
  const auto source = source_of(story_folder());
  LoadSpeedSettings settings;
  settings.rounds = 2;
  settings.limit_bytes = kGiB;
  settings.available_bytes = 4 * kGiB;
  const auto speed = measure_load(source, settings);
  ASSERT_TRUE(speed) << to_string(speed.error());
  ASSERT_EQ(speed->kinds.size(), 7U);
  for (const PassKind& kind : speed->kinds) {
    EXPECT_EQ(kind.rounds.size(), 2U) << kind.name;
    EXPECT_FALSE(kind.how.empty()) << kind.name;
  }
}

TEST(LoadSpeed, MeasuresNoWarmLoadWhereMemoryCannotHoldBoth) {
  const auto source = source_of(story_folder());
  const auto speed =
      measure_load(source, {.policy = {}, .rounds = 1, .limit_bytes = kGiB, .available_bytes = 1});
  ASSERT_TRUE(speed);
  EXPECT_TRUE(speed->find("warm")->rounds.empty());
  EXPECT_FALSE(speed->find("cold")->rounds.empty());
}

TEST(LoadSpeed, StopsWhenAsked) {
  const auto source = source_of(story_folder());
  const auto speed =
      measure_load(source, {.policy = {}, .rounds = 1, .limit_bytes = kGiB, .available_bytes = 1},
                   [] { return false; });
  ASSERT_FALSE(speed);
  EXPECT_EQ(speed.error().code, Code::kInterrupted);
}

}  // namespace
}  // namespace lode::engine
