#include "lode/engine/prepare_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/base/bytes.h"

namespace lode::engine {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::SizeIs;
using ::testing::StartsWith;

PrepareSpeedSettings small_layer() {
  PrepareSpeedSettings settings;
  settings.num_experts = 2;
  settings.hidden = 2048;
  settings.intermediate = 1024;
  settings.rounds = 1;
  settings.limit_bytes = kGiB;
  return settings;
}

TEST(PrepareSpeed, IsOfEveryLargeTensorOfTheTarget) {
  PrepareSpeedSettings settings = small_layer();
  settings.target = targets::Target::kMarlin;
  const auto speeds = measure_prepare(settings);
  ASSERT_TRUE(speeds) << to_string(speeds.error());
  EXPECT_THAT(speeds->transforms, Each(Field(&TransformSpeed::name, StartsWith("marlin "))));
  EXPECT_THAT(speeds->transforms, Each(Field(&TransformSpeed::times_us, SizeIs(1))));
  EXPECT_THAT(speeds->transforms, Each(Field(&TransformSpeed::copies_us, SizeIs(1))));
  // Gate and up of 2 experts, 2048 by 1024, in half bytes.
  EXPECT_THAT(speeds->transforms,
              Contains(AllOf(Field(&TransformSpeed::name, "marlin nvfp4 w13_weight"),
                             Field(&TransformSpeed::bytes, 2 * 2048 * 1024))));
  for (const TransformSpeed& speed : speeds->transforms) {
    EXPECT_GT(speed.bytes_per_second(), 0) << speed.name;
    EXPECT_GT(speed.of_memcpy(), 0) << speed.name;
  }
}

TEST(PrepareSpeed, EndsWhenTheUserSaysStop) {
  PrepareSpeedSettings settings = small_layer();
  std::size_t asked = 0;
  // Stopped when the routes begin: there are four transforms in place, two rounds each.
  const auto stopped = measure_prepare(settings, [&] { return ++asked <= 8; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kInterrupted);
  EXPECT_EQ(asked, 9U);
}

TEST(PrepareSpeed, OfNothingIsRefused) {
  for (const auto member : {&PrepareSpeedSettings::num_experts, &PrepareSpeedSettings::hidden,
                            &PrepareSpeedSettings::intermediate}) {
    for (const std::uint64_t extent : {std::uint64_t{0}, std::uint64_t{1} << 60}) {
      PrepareSpeedSettings settings = small_layer();
      settings.*member = extent;
      const auto speeds = measure_prepare(settings);
      ASSERT_FALSE(speeds);
      EXPECT_EQ(speeds.error().code, Code::kUsage);
    }
  }
}

// The hint is a promise: with so much it runs, with a byte less it does not begin.
TEST(PrepareSpeed, SaysWhichLimitFitsAndRunsInsideIt) {
  for (const auto target :
       {std::optional<targets::Target>(), std::optional(targets::Target::kMarlin)}) {
    PrepareSpeedSettings settings = small_layer();
    settings.target = target;
    settings.limit_bytes = kMiB;
    const auto refused = measure_prepare(settings);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kOverBudget);

    ASSERT_THAT(refused.error().hint, StartsWith("--memory "));
    const std::uint64_t fits = std::stoull(refused.error().hint.substr(9));
    settings.limit_bytes = fits - 1;
    EXPECT_FALSE(measure_prepare(settings));
    settings.limit_bytes = fits;
    const auto speeds = measure_prepare(settings);
    EXPECT_TRUE(speeds) << to_string(speeds.error());
  }
}

TEST(PrepareSpeed, CountsTheTensorsThatAreTooSmall) {
  PrepareSpeedSettings settings = small_layer();
  settings.target = targets::Target::kMarlin;
  const auto speeds = measure_prepare(settings);
  ASSERT_TRUE(speeds) << to_string(speeds.error());
  EXPECT_THAT(speeds->transforms,
              Each(Field(&TransformSpeed::bytes, ::testing::Ge(kLeastMeasuredBytes))));
  EXPECT_GT(speeds->num_small, 0U);
}

TEST(PrepareSpeed, OfTensorsThatAreAllTooSmallIsRefusedAndSaysWhatIsLargeEnough) {
  PrepareSpeedSettings settings = small_layer();
  settings.num_experts = 1;
  settings.hidden = settings.intermediate = 256;
  const auto speeds = measure_prepare(settings);
  ASSERT_FALSE(speeds);
  EXPECT_EQ(speeds.error().code, Code::kUsage);
  EXPECT_THAT(to_string(speeds.error()), ::testing::HasSubstr("2.0 MiB or more"));
}

}  // namespace
}  // namespace lode::engine
