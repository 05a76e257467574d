#include "lode/eplb/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/comm/thread_group.h"
#include "lode/placement/load_decay.h"
#include "lode/placement/replica.h"

namespace lode::eplb {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr std::uint64_t kRoomy = std::uint64_t{1} << 30;

TEST(ExpertLoad, HoldsWhatItSaysAndGivesItBack) {
  memory::Ledger ledger(kRoomy);
  const LoadShape shape{58, 256, 32};
  {
    const auto load = ExpertLoad::make(ledger, shape, 1);
    ASSERT_TRUE(load);
    // Four tables of four bytes, and a number of each rank for each expert of a layer.
    EXPECT_EQ(load_bytes(shape), 4U * 58 * 256 * 4 + 32 * 256 * 4);
    const memory::BufferCost cost = memory::buffer_cost(load_bytes(shape));
    EXPECT_EQ(ledger.held_bytes(memory::Tag::kMetadata), cost.tag_bytes);
    EXPECT_EQ(ledger.held_bytes(), cost.tag_bytes + cost.page_table_bytes);
  }
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST(ExpertLoad, IsRefusedWhereItDoesNotFit) {
  memory::Ledger ledger(1000);
  const auto load = ExpertLoad::make(ledger, {2, 4, 1}, 1);
  ASSERT_FALSE(load);
  EXPECT_EQ(load.error().code, Code::kOverBudget);
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

class TwoLayers : public testing::Test {
 protected:
  void count(std::vector<std::int32_t> ids, std::size_t layer) {
    placement::count_experts({ids, 1, ids.size()}, load_.pass_counts().subspan(layer * 3, 3));
  }
  memory::Ledger ledger_{kRoomy};
  ExpertLoad load_ = *ExpertLoad::make(ledger_, {2, 3, 1}, 0.5F);
};

TEST_F(TwoLayers, HalvesWhatOlderPassesCountAndKeepsTheWindowExact) {
  count({0, 0, 2, -1, 3}, 0);  // no expert: -1 and 3
  load_.end_pass();
  EXPECT_THAT(load_.pass_counts(), Each(0U));
  count({2, 1}, 1);
  count({0}, 0);
  load_.end_pass();
  EXPECT_THAT(load_.window_counts(), ElementsAre(3, 0, 1, 0, 1, 1));
  EXPECT_THAT(load_.sums(), ElementsAre(2, 0, 0.5F, 0, 1, 1));
  EXPECT_EQ(load_.window_passes(), 2U);
}

TEST_F(TwoLayers, DropsAPassThatDoesNotCount) {
  count({0, 1}, 0);
  load_.end_pass(false);
  EXPECT_THAT(load_.pass_counts(), Each(0U));
  EXPECT_THAT(load_.sums(), Each(0.0F));
  EXPECT_EQ(load_.sum_passes(), 0U);
}

TEST_F(TwoLayers, KeepsItsSumsOverWindowsUntilItForgets) {
  count({1}, 0);
  load_.end_pass();
  load_.begin_window();
  EXPECT_THAT(load_.window_counts(), Each(0U));
  EXPECT_EQ(load_.window_passes(), 0U);
  EXPECT_THAT(load_.sums(), ElementsAre(0, 1, 0, 0, 0, 0));
  load_.reset();
  EXPECT_THAT(load_.sums(), Each(0.0F));
  EXPECT_EQ(load_.sum_passes(), 0U);
}

TEST_F(TwoLayers, CountsNoFurtherThanItsNumbersGo) {
  for (int pass = 0; pass < 2; ++pass) {
    load_.pass_counts()[4] = ~0U - 1;
    load_.end_pass();
  }
  EXPECT_EQ(load_.window_counts()[4], ~0U);
}

// Rank r counts r + 1 choices of expert r in layer 1.
TEST(ExpertLoad, IsTheSumOverRanksOnEveryRank) {
  const Status status = comm::run_ranks(3, {}, [](comm::Group& group) -> Status {
    memory::Ledger ledger(kRoomy);
    LODE_TRY(ExpertLoad load, ExpertLoad::make(ledger, {2, 4, 3}, 1));
    const std::size_t rank = group.rank();
    load.pass_counts()[4 + rank] = static_cast<std::uint32_t>(rank + 1);
    load.pass_counts()[0] = 1'000'000'007U;
    load.end_pass();
    LODE_TRY(const std::span<const float> sums, load.sum_over_ranks(group));
    EXPECT_THAT(sums, ElementsAre(3'000'000'021.0F, 0, 0, 0, 1, 2, 3, 0));
    std::vector<std::uint64_t> counts(8);
    LODE_TRY_STATUS(load.count_over_ranks(group, counts));
    EXPECT_THAT(counts, ElementsAre(3'000'000'021U, 0, 0, 0, 1, 2, 3, 0));
    return {};
  });
  EXPECT_TRUE(status) << to_string(status.error());
}

}  // namespace
}  // namespace lode::eplb
