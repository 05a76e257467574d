#include "lode/memory/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace lode::memory {
namespace {

TEST(Ledger, RefusesOneByteMoreThanTheLimit) {
  Ledger ledger(100);
  const auto all = ledger.reserve(Tag::kWeights, 100, "all");
  ASSERT_TRUE(all);
  const auto more = ledger.reserve(Tag::kScratch, 1, "one more");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kOverBudget);
  EXPECT_EQ(more.error().thing, "one more");
  EXPECT_THAT(more.error().wanted, testing::HasSubstr("1 bytes of scratch"));
  EXPECT_THAT(more.error().found, testing::HasSubstr("0 of 100 bytes free, 100 held"));
  EXPECT_EQ(ledger.held_bytes(), 100U);
}

TEST(Ledger, RefusesSumsThatDoNotFit64Bits) {
  Ledger ledger(~std::uint64_t{0});
  const auto some = ledger.reserve(Tag::kWeights, 10, "some");
  ASSERT_TRUE(some);
  EXPECT_FALSE(ledger.reserve(Tag::kWeights, ~std::uint64_t{0}, "too much"));
}

TEST(Ledger, GetsBytesBackWhenAReservationEnds) {
  Ledger ledger(100);
  {
    auto first = ledger.reserve(Tag::kStaging, 60, "ring");
    ASSERT_TRUE(first);
    Reservation moved = std::move(*first);
    EXPECT_EQ(ledger.held_bytes(Tag::kStaging), 60U);
    EXPECT_EQ(moved.bytes(), 60U);
    Reservation other;
    other = std::move(moved);
    EXPECT_EQ(ledger.held_bytes(), 60U);
  }
  EXPECT_EQ(ledger.held_bytes(), 0U);
  EXPECT_EQ(ledger.peak_bytes(), 60U);
}

TEST(Ledger, GivesBackWhatAnAssignmentReplaces) {
  Ledger ledger(100);
  auto first = ledger.reserve(Tag::kStaging, 60, "first");
  auto second = ledger.reserve(Tag::kScratch, 40, "second");
  ASSERT_TRUE(first && second);
  *first = std::move(*second);
  EXPECT_EQ(ledger.held_bytes(), 40U);
  EXPECT_EQ(ledger.held_bytes(Tag::kStaging), 0U);
}

TEST(Ledger, RecordsWhatEachStageHeldAndItsPeaks) {
  Ledger ledger(1000);
  auto kept = ledger.reserve(Tag::kMetadata, 5, "before");
  ledger.begin_stage("one");
  { auto ring = ledger.reserve(Tag::kStaging, 100, "ring"); }
  auto weights = ledger.reserve(Tag::kWeights, 70, "weights");
  ledger.begin_stage("two");
  ledger.end_stage();
  const auto stages = ledger.stages();
  ASSERT_EQ(stages.size(), 2U);
  const TagBytes held = {70, 0, 0, 0, 5, 0};
  const TagBytes peak = {70, 0, 100, 0, 5, 0};
  EXPECT_EQ(stages[0], (StageUse{"one", held, peak, 105}));
  EXPECT_EQ(stages[1], (StageUse{"two", held, held, 75}));
}

TEST(Ledger, IsExactUnderThreads) {
  Ledger ledger(1'000'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger] {
      for (int i = 0; i < 1000; ++i) auto taken = ledger.reserve(Tag::kScratch, 250, "loop");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.held_bytes(), 0U);
  EXPECT_LE(ledger.peak_bytes(), 1000U);
}

TEST(FailingLedger, RefusesExactlyTheReservationItWasToldTo) {
  FailingLedger ledger(1000, 1);
  const auto first = ledger.reserve(Tag::kScratch, 1, "first");
  EXPECT_FALSE(ledger.refused());
  const auto second = ledger.reserve(Tag::kScratch, 1, "second");
  EXPECT_TRUE(ledger.refused());
  const auto third = ledger.reserve(Tag::kScratch, 1, "third");
  EXPECT_TRUE(first && third);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kOverBudget);
}

TEST(Tag, NamesAreDifferent) {
  for (std::size_t a = 0; a < kNumTags; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(name(static_cast<Tag>(a)), name(static_cast<Tag>(b)));
    }
  }
}

}  // namespace
}  // namespace lode::memory
