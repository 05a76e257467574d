#include "lode/placement/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/placement/test_golden.h"

namespace lode::placement {
namespace {

using testing::Each;
using testing::ElementsAre;

ExpertMap map_of(std::vector<std::int32_t> physical_to_logical, std::size_t experts,
                 std::size_t ranks) {
  auto map = ExpertMap::make(std::move(physical_to_logical), experts, ranks);
  EXPECT_TRUE(map) << to_string(map.error());
  return *std::move(map);
}

TEST(ReplicaChoice, HashesRowsAsTheGoldenNumbersSay) {
  for (const json::Value& one : golden::cases("knuth_hash"))
    EXPECT_EQ(knuth_hash(golden::size(one, "token")), golden::integer(one, "hash"));
}

// A map that has the slots of the case's table.
ExpertMap map_of_table(const json::Value& one) {
  const auto table = golden::rows<std::int32_t>(one, "log2phy");
  std::vector<std::int32_t> slots(golden::size(one, "num_physical"), kNoExpert);
  for (std::size_t expert = 0; expert < table.size(); ++expert)
    for (const std::int32_t slot : table[expert])
      if (slot >= 0) slots[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(expert);
  return map_of(slots, table.size(), 1);
}

TEST(ReplicaChoice, ChoosesByHashAndCountsAsTheGoldenCasesDo) {
  for (const json::Value& one : golden::cases("replica_select_knuth")) {
    const ExpertMap map = map_of_table(one);
    std::vector<std::int32_t> ids, want;
    const auto rows = golden::rows<std::int32_t>(one, "topk_ids");
    for (const auto& row : rows) ids.insert(ids.end(), row.begin(), row.end());
    for (const auto& row : golden::rows<std::int32_t>(one, "physical_ids"))
      want.insert(want.end(), row.begin(), row.end());
    const bool padded = !one.find("num_unpadded_tokens")->is_null();
    const std::size_t counted = padded ? golden::size(one, "num_unpadded_tokens") : rows.size();
    std::vector<std::int32_t> slots(ids.size()), load(map.slots());
    choose_by_hash(map, {ids, rows.front().size(), counted}, slots, load);
    EXPECT_EQ(slots, want);
    EXPECT_EQ(load, golden::numbers<std::int32_t>(one, "load"));
  }
}

TEST(ReplicaChoice, CountsExpertsOfRealRowsOnly) {
  const std::vector<std::int32_t> ids{0, 1, -1, 7, 1, 2, 2, 2};
  std::vector<std::uint32_t> load(3);
  count_experts({ids, 2, 3}, load);
  EXPECT_THAT(load, ElementsAre(1, 2, 1));
}

// Expert 0 lies on ranks 0, 1 and 3, expert 1 on ranks 0 and 2; two ranks a node.
TEST(NearReplicas, TakesTheOwnRankThenTheNodeThenAll) {
  const ExpertMap map = map_of({0, 1, 0, 2, 1, 3, 0, 3}, 4, 4);
  const NearReplicas rank1(map, 1, 2), rank2(map, 2, 2);
  EXPECT_THAT(rank1.slots_of(0), ElementsAre(2));     // its own
  EXPECT_THAT(rank1.slots_of(1), ElementsAre(1));     // its node's
  EXPECT_THAT(rank1.slots_of(3), ElementsAre(5, 7));  // of the other node, both
  EXPECT_THAT(rank2.slots_of(0), ElementsAre(6));
  EXPECT_THAT(rank2.slots_of(2), ElementsAre(3));
}

// Whatever the batch, the replicas of an expert differ by at most one row of a source.
TEST(NearReplicas, SpreadsASmallBatchEvenly) {
  const ExpertMap map = map_of({0, 1, 0, 2, 0, 3, 1, 2}, 4, 4);
  for (const std::size_t rows : {1u, 2u, 7u, 8u, 9u}) {
    const NearReplicas near(map, 3, 1);
    const std::vector<std::int32_t> ids(rows, 0);
    std::vector<std::int32_t> slots(rows);
    std::vector<std::uint32_t> turns(4, 99);
    near.choose(ids, slots, turns);
    std::vector<std::size_t> counts;
    for (const std::int32_t slot : {0, 2, 4})
      counts.push_back(static_cast<std::size_t>(std::ranges::count(slots, slot)));
    EXPECT_LE(std::ranges::max(counts) - std::ranges::min(counts), 1u);
    EXPECT_EQ(counts[0] + counts[1] + counts[2], rows);
  }
}

TEST(NearReplicas, ShiftsTheFirstTurnByTheRank) {
  const ExpertMap map = map_of({0, 1, 0, 1, 2, 3, 2, 3}, 4, 4);
  std::vector<std::int32_t> slots(3);
  std::vector<std::uint32_t> turns(4);
  const std::vector<std::int32_t> ids{0, 0, 0};
  NearReplicas(map, 2, 1).choose(ids, slots, turns);
  EXPECT_THAT(slots, ElementsAre(0, 2, 0));
  NearReplicas(map, 3, 1).choose(ids, slots, turns);
  EXPECT_THAT(slots, ElementsAre(2, 0, 2));
}

TEST(NearReplicas, GivesInvalidIdsNoSlot) {
  const ExpertMap map = map_of({0, 1}, 2, 1);
  const std::vector<std::int32_t> ids{-1, 2, -2147483647, 2147483647};
  std::vector<std::int32_t> slots(4);
  std::vector<std::uint32_t> turns(2);
  NearReplicas(map, 0, 1).choose(ids, slots, turns);
  EXPECT_THAT(slots, Each(-1));
}

}  // namespace
}  // namespace lode::placement
