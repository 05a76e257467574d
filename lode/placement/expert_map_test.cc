#include "lode/placement/expert_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/placement/linear_placement.h"
#include "lode/placement/test_golden.h"

namespace lode::placement {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

TEST(ExpertMap, BeginsAsTheGoldenMapsDo) {
  for (const json::Value& one : golden::cases("initial_map")) {
    const std::size_t experts = golden::size(one, "num_routed");
    const std::size_t slots = experts + golden::size(one, "num_redundant");
    const auto map = initial_map(experts, slots, 1);
    ASSERT_TRUE(map) << to_string(map.error());
    EXPECT_THAT(map->physical_to_logical(),
                ElementsAreArray(golden::numbers<std::int32_t>(one, "phy2log")));
  }
}

TEST(ExpertMap, ListsTheSlotsOfAnExpertAsTheGoldenMapsDo) {
  for (const json::Value& one : golden::cases("logical_maps")) {
    const std::size_t experts = golden::size(one, "num_logical");
    const auto map = ExpertMap::make(golden::numbers<std::int32_t>(one, "phy2log"), experts, 1);
    ASSERT_TRUE(map) << to_string(map.error());
    const auto lists = golden::rows<std::int32_t>(one, "log2phy");
    const auto counts = golden::numbers<std::size_t>(one, "replica_count");
    ASSERT_EQ(lists.size(), experts);
    for (std::size_t expert = 0; expert < experts; ++expert) {
      ASSERT_EQ(map->replica_count(expert), counts[expert]);
      EXPECT_THAT(
          map->slots_of(expert),
          ElementsAreArray(lists[expert].begin(),
                           lists[expert].begin() + static_cast<std::ptrdiff_t>(counts[expert])));
    }
  }
}

// 58 layers, 256 experts and 288 slots need (257 + 288) x 4 bytes a layer for the way to slots
// (moe_runner_eplb 5.6), and 288 x 4 for the way back.
TEST(ExpertMap, HoldsTablesOfExactSize) {
  const auto map = initial_map(256, 288, 32);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->table_bytes(), (257 + 288) * 4 + 288 * 4);
}

TEST(ExpertMap, KnowsTheRankOfASlot) {
  const auto map = ExpertMap::make({0, 2, 1, 0, kNoExpert, 1}, 3, 2);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->slots_per_rank(), 3u);
  EXPECT_EQ(map->rank_of(2), 0u);
  EXPECT_EQ(map->rank_of(3), 1u);
  EXPECT_EQ(map->filled_slots(), 5u);
  EXPECT_THAT(map->experts_on(1), ElementsAre(0, kNoExpert, 1));
}

struct BadMap {
  std::vector<std::int32_t> physical_to_logical;
  std::size_t experts, ranks;
  const char* message;
};

TEST(ExpertMap, RefusesAMapByTheNameOfWhatIsWrong) {
  const BadMap bad[] = {
      {{0, 1, 2}, 3, 2, "slots of an expert map: want a multiple of 2 ranks, found 3"},
      {{0, 3}, 3, 1, "slot 1 of an expert map: want an expert of 0..2, or -1, found 3"},
      {{0, -2}, 1, 1, "slot 1 of an expert map: want an expert of 0..0, or -1, found -2"},
      {{0, 2, 0, 2}, 3, 2, "expert 1 of an expert map: want a slot that holds it, found none"},
      {{}, 3, 1, "number of slots of an expert map: want 1.."},
      {{0}, 0, 1, "number of experts of an expert map: want 1.."},
      {{0}, 1, 0, "number of ranks of an expert map: want 1.."},
      {{0}, kMaxExperts + 1, 1, "number of experts"},
  };
  for (const BadMap& one : bad) {
    const auto map = ExpertMap::make(one.physical_to_logical, one.experts, one.ranks);
    ASSERT_FALSE(map) << one.message;
    EXPECT_EQ(map.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(map.error()), HasSubstr(one.message));
  }
}

TEST(ExpertMap, DoesNotBeginWithFewerSlotsThanExperts) {
  for (const auto [experts, slots, ranks] :
       {std::array<std::size_t, 3>{4, 3, 1}, {0, 3, 1}, {4, 6, 4}, {1, kMaxSlots + 1, 1}}) {
    const auto map = initial_map(experts, slots, ranks);
    ASSERT_FALSE(map);
    EXPECT_EQ(map.error().code, Code::kUsage);
  }
}

TEST(ExpertMap, GrowsByEmptyRanksAndShrinksBack) {
  const auto map = initial_map(4, 6, 2);
  ASSERT_TRUE(map);
  const auto large = grown(*map, 3);
  ASSERT_TRUE(large) << to_string(large.error());
  EXPECT_THAT(large->physical_to_logical(), ElementsAre(0, 1, 2, 3, 0, 1, -1, -1, -1));
  EXPECT_EQ(large->slots_per_rank(), 3u);
  const auto small = shrunk(*large, 2);
  ASSERT_TRUE(small);
  EXPECT_EQ(*small, *map);
}

TEST(ExpertMap, DoesNotShrinkAwayTheLastReplica) {
  const auto map = initial_map(4, 6, 2);
  ASSERT_TRUE(map);
  const auto small = shrunk(*map, 1);
  ASSERT_FALSE(small);
  EXPECT_THAT(to_string(small.error()), HasSubstr("expert 3 of an expert map"));
  EXPECT_FALSE(shrunk(*map, 0));
  EXPECT_FALSE(shrunk(*map, 3));
  EXPECT_FALSE(grown(*map, 1));
  EXPECT_FALSE(grown(*map, kMaxRanks + 1));
}

Order order_of(const json::Value& one) {
  const std::string& name = *one.find("placement")->as_string();
  EXPECT_TRUE(name == "linear" || name == "round_robin");
  return name == "linear" ? Order::kLinear : Order::kRoundRobin;
}

TEST(DealtMap, GivesEveryRankTheGoldenTable) {
  for (const json::Value& one : golden::cases("expert_map")) {
    const auto map =
        dealt_map(golden::size(one, "num_experts"), golden::size(one, "ep_size"), order_of(one));
    ASSERT_TRUE(map) << to_string(map.error());
    for (const json::Value& rank : *one.find("ranks")->as_array()) {
      const std::size_t number = golden::size(rank, "rank");
      const auto held = map->experts_on(number);
      EXPECT_EQ(held.size() - static_cast<std::size_t>(std::ranges::count(held, kNoExpert)),
                golden::size(rank, "local"));
      const auto table = rank_local_map(*map, number);
      ASSERT_EQ(table.has_value(), !rank.find("map")->is_null());
      if (table) {
        EXPECT_THAT(*table, ElementsAreArray(golden::numbers<std::int32_t>(rank, "map")));
      }
    }
  }
}

TEST(DealtMap, NumbersExpertsByRankAsTheGoldenTablesDo) {
  for (const json::Value& one : golden::cases("round_robin_tables")) {
    const auto map = dealt_map(golden::size(one, "num_experts"), golden::size(one, "ep_size"),
                               Order::kRoundRobin);
    ASSERT_TRUE(map);
    const ContiguousIds ids = contiguous_ids(*map);
    EXPECT_EQ(ids.global_to_physical, golden::numbers<std::int32_t>(one, "global_to_physical"));
    EXPECT_EQ(ids.physical_to_global, golden::numbers<std::int32_t>(one, "physical_to_global"));
  }
}

// Seven experts on three ranks: 0 3 6 | 1 4 | 2 5 by hand.
TEST(DealtMap, NumbersUnevenRanksWithoutGaps) {
  const auto map = dealt_map(7, 3, Order::kRoundRobin);
  ASSERT_TRUE(map);
  EXPECT_THAT(map->physical_to_logical(), ElementsAre(0, 3, 6, 1, 4, -1, 2, 5, -1));
  EXPECT_THAT(contiguous_ids(*map).physical_to_global, ElementsAre(0, 3, 6, 1, 4, 2, 5));
}

TEST(DealtMap, RefusesNoExpertsAndNoRanks) {
  EXPECT_THAT(to_string(dealt_map(0, 1, Order::kLinear).error()), HasSubstr("number of experts"));
  EXPECT_THAT(to_string(dealt_map(1, 0, Order::kLinear).error()), HasSubstr("number of ranks"));
  EXPECT_FALSE(dealt_map(kMaxExperts + 1, 1, Order::kLinear));
}

TEST(DealtMap, SaysWhyRoundRobinCannotBeHad) {
  const RoundRobinWish fine{.expert_groups = 8};
  EXPECT_EQ(round_robin_refusal(fine), std::nullopt);
  EXPECT_THAT(*round_robin_refusal({}), HasSubstr("one group"));
  EXPECT_THAT(*round_robin_refusal({.expert_groups = 8, .redundant_experts = 2}),
              HasSubstr("2 redundant"));
  EXPECT_THAT(*round_robin_refusal({.expert_groups = 8, .balancing = true}),
              HasSubstr("balancing"));
  EXPECT_THAT(*round_robin_refusal({.expert_groups = 8, .backend_takes_it = false}),
              HasSubstr("exchange"));
}

}  // namespace
}  // namespace lode::placement
