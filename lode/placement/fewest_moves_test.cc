#include "lode/placement/fewest_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "lode/placement/assignment.h"
#include "lode/placement/test_golden.h"
#include "lode/placement/test_random_maps.h"
#include "lode/placement/transfer_plan.h"

namespace lode::placement {
namespace {

using testing::ElementsAre;
using Maps = std::vector<std::int32_t>;

TEST(PreserveSlots, KeepsSlotsAsTheGoldenCasesDo) {
  for (const json::Value& one : golden::cases("preserve_slots")) {
    auto planned = golden::numbers<std::int32_t>(one, "new");
    const auto held = golden::numbers<std::int32_t>(one, "old");
    preserve_slots(planned, held, planned.size() / golden::size(one, "num_ranks"));
    EXPECT_EQ(planned, golden::numbers<std::int32_t>(one, "expected"));
  }
}

// The plan names the ranks the other way round; nothing needs to move.
TEST(Settle, GivesContentsToTheRanksThatHoldThem) {
  Maps planned{2, 3, 0, 1};
  settle(planned, Maps{0, 1, 3, 2}, {.ranks = 2});
  EXPECT_THAT(planned, ElementsAre(0, 1, 3, 2));
}

// Two nodes of two ranks: contents stay among the ranks that were planned together.
TEST(Settle, KeepsTheRanksOfANodeTogether) {
  Maps planned{0, 1, 2, 3};
  settle(planned, Maps{0, 2, 1, 3}, {.ranks = 4, .nodes = 2});
  const auto place = [&](std::int32_t expert) {
    return (std::ranges::find(planned, expert) - planned.begin()) / 2;
  };
  EXPECT_EQ(place(0), place(1));
  EXPECT_EQ(place(2), place(3));
}

RC_GTEST_PROP(Assignment, IsTheBestOfAllOrders, ()) {
  const std::size_t n = *rc::gen::inRange<std::size_t>(1, 6);
  const auto gains =
      *rc::gen::container<std::vector<std::int64_t>>(n * n, rc::gen::inRange<std::int64_t>(0, 6));
  const auto sum = [&](const std::vector<std::size_t>& columns) {
    std::int64_t total = 0;
    for (std::size_t row = 0; row < n; ++row) total += gains[row * n + columns[row]];
    return total;
  };
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t best = 0;
  do best = std::max(best, sum(order));
  while (std::next_permutation(order.begin(), order.end()));
  RC_ASSERT(sum(assign(gains, n)) == best);
}

TEST(Assignment, GivesEveryRowAColumnAlsoAboveTheExactSize) {
  const std::size_t n = kMaxExactAssignment + 3;
  std::vector<std::int64_t> gains(n * n);
  for (std::size_t row = 0; row < n; ++row) gains[row * n + (row + 1) % n] = 5;
  const auto columns = assign(gains, n);
  for (std::size_t row = 0; row < n; ++row) EXPECT_EQ(columns[row], (row + 1) % n);
}

TEST(Assignment, LetsRowsStayWhereNothingIsGained) {
  EXPECT_THAT(assign(std::vector<std::int64_t>(9, 2), 3), ElementsAre(0, 1, 2));
  const std::size_t n = kMaxExactAssignment + 1;
  const auto columns = assign(std::vector<std::int64_t>(n * n), n);
  for (std::size_t row = 0; row < n; ++row) EXPECT_EQ(columns[row], row);
}

std::size_t sends(const Maps& from, const Maps& to, std::size_t ranks) {
  const auto plan = plan_transfer(from, to, ranks);
  RC_ASSERT(plan.has_value());
  return sent_records(*plan);
}

std::vector<Maps> contents(const Maps& map, std::size_t ranks) {
  std::vector<Maps> ranks_of(ranks);
  for (std::size_t slot = 0; slot < map.size(); ++slot)
    ranks_of[slot / (map.size() / ranks)].push_back(map[slot]);
  for (Maps& rank : ranks_of) std::ranges::sort(rank);
  return ranks_of;
}

RC_GTEST_PROP(Settle, ChangesNamesOnlyAndSendsNoMoreThanAnyOtherNames, ()) {
  const std::size_t ranks = *rc::gen::inRange<std::size_t>(1, 5);
  const std::size_t slots = ranks * *rc::gen::inRange<std::size_t>(1, 4);
  const std::size_t experts = *rc::gen::inRange<std::size_t>(1, slots + 1);
  const Maps held = random_map(experts, slots, true);
  const Maps planned = random_map(experts, slots, false);
  Maps settled = planned;
  settle(settled, held, {.ranks = ranks});
  auto before = contents(planned, ranks);
  auto after = contents(settled, ranks);
  const std::size_t moved = sends(held, settled, ranks);
  std::ranges::sort(before);
  std::ranges::sort(after);
  RC_ASSERT(before == after);
  do {
    Maps named;
    for (const Maps& rank : before) named.insert(named.end(), rank.begin(), rank.end());
    RC_ASSERT(moved <= sends(held, named, ranks));
  } while (std::next_permutation(before.begin(), before.end()));
}

}  // namespace
}  // namespace lode::placement
