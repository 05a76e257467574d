#include "lode/targets/losses.h"

#include <gtest/gtest.h>

#include <set>

namespace lode::targets {
namespace {

TEST(Losses, AreATableInTheOrderOfTheEnumWithNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kNumLosses; ++i) {
    EXPECT_EQ(static_cast<std::size_t>(loss_table()[i].loss), i);
    names.insert(loss_table()[i].name);
  }
  EXPECT_EQ(names.size(), kNumLosses);
}

TEST(Losses, NameTheFirstThatIsRefusedAndNotOneThatIsOnlyTold) {
  LossCounts counts;
  EXPECT_FALSE(counts.any());
  counts.add(Loss::kNarrowedScales, 3);
  EXPECT_TRUE(counts.any());
  EXPECT_EQ(counts.first_refused(true), std::nullopt);
  LossCounts more;
  more.add(Loss::kRoundedScales, 1);
  counts += more;
  counts += more;
  EXPECT_EQ(counts.first_refused(true), Loss::kRoundedScales);
  EXPECT_EQ(counts.first_refused(false), std::nullopt);
  EXPECT_EQ(counts.of(Loss::kRoundedScales), 2U);
}

TEST(Losses, AreRefusedToEverybodyWhereNothingIsLeft) {
  LossCounts counts;
  counts.add(Loss::kFlushedScales, 1);
  counts.add(Loss::kNanBlocks, 1);
  EXPECT_EQ(counts.first_refused(false), Loss::kNanBlocks);
  EXPECT_EQ(counts.first_refused(true), Loss::kNanBlocks);
}

// 0x38 is 1, 0x3C 1.5, 0x01 the smallest, 2^-9, 0x7E the largest, 448; 0x7F is NaN.
TEST(FatesOfScaledE4m3, AreNoneWhereTheFactorIsOne) {
  EXPECT_EQ(fates_of_scaled_e4m3(1.0F, Loss::kRoundedScales), Fates{});
}

TEST(FatesOfScaledE4m3, AreOnlyThoseOfTheSmallestWhereTheFactorIsAHalf) {
  // Half of 2^-9 lies between 0 and 2^-9 and goes to the even code, which is 0.
  const Fates fates = fates_of_scaled_e4m3(0.5F, Loss::kRoundedScales);
  EXPECT_EQ(fates[0x01], Loss::kFlushedScales);
  EXPECT_EQ(fates[0x81], Loss::kFlushedScales);
  EXPECT_EQ(fates[0x03], Loss::kRoundedScales);  // 1.5 of the smallest
  EXPECT_EQ(fates[0x38], std::nullopt);
  EXPECT_EQ(fates[0x7F], std::nullopt);
}

TEST(FatesOfScaledE4m3, AreRoundedWhereTheMantissaDoesNotHoldTheProduct) {
  const Fates fates = fates_of_scaled_e4m3(0.75F, Loss::kFoldedScales);
  EXPECT_EQ(fates[0x38], std::nullopt);         // 0.75 is a code
  EXPECT_EQ(fates[0x3C], std::nullopt);         // so is 1.125
  EXPECT_EQ(fates[0x01], Loss::kFoldedScales);  // up to the smallest
}

// A product above 448 saturates: weight_layouts 2.5.
TEST(FatesOfScaledE4m3, SaturateAboveTheLargestOfEitherSign) {
  EXPECT_EQ(fates_of_scaled_e4m3(1.01F, Loss::kFoldedScales)[0x7E], Loss::kSaturatedScales);
  const Fates large = fates_of_scaled_e4m3(450.0F, Loss::kFoldedScales);
  EXPECT_EQ(large[0x38], Loss::kSaturatedScales);
  EXPECT_EQ(large[0xB8], Loss::kSaturatedScales);
  EXPECT_EQ(large[0x00], std::nullopt);
}

TEST(CountFates, AddHowOftenEachCodeIsThere) {
  Fates fates{};
  fates[3] = Loss::kFlushedScales;
  fates[4] = Loss::kFlushedScales;
  std::array<std::uint64_t, 256> codes{};
  codes[3] = 5;
  codes[4] = 7;
  codes[5] = 100;
  LossCounts losses;
  count_fates(fates, codes, losses);
  LossCounts wanted;
  wanted.add(Loss::kFlushedScales, 12);
  EXPECT_EQ(losses, wanted);
}

}  // namespace
}  // namespace lode::targets
