#include "lode/eplb/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/eplb/test_banks.h"
#include "lode/placement/transfer_plan.h"

namespace lode::eplb {
namespace {

using test::ExpertMap;
using test::MapShape;
using testing::ElementsAre;

ExpertMap map_of(std::vector<std::int32_t> experts, std::size_t ranks) {
  const std::size_t count = static_cast<std::size_t>(std::ranges::max(experts)) + 1;
  return *ExpertMap::make(std::move(experts), count, ranks);
}

std::vector<std::int32_t> list(const ExpertMap& map) {
  return {map.physical_to_logical().begin(), map.physical_to_logical().end()};
}

// moe_runner_eplb, worked example A: rank 0 sends expert 2 from its slot 2 to rank 1.
TEST(StepPlan, MovesWhatTheWorkedExampleMoves) {
  const MigrationStep step =
      next_step(map_of({0, 1, 2, 3, 0, 1}, 2), map_of({0, 1, 2, 3, 0, 2}, 2), 8);
  EXPECT_THAT(step.moves, ElementsAre(RecordMove{2, 0, 2, 1}));
  EXPECT_THAT(list(step.next), ElementsAre(0, 1, 2, 3, 0, 2));
}

TEST(StepPlan, ExchangesTheOnlyCopiesOfTwoRanksAtOnce) {
  const MigrationStep step = next_step(map_of({0, 1}, 2), map_of({1, 0}, 2), 1);
  EXPECT_EQ(step.moves.size(), 2U);
  EXPECT_THAT(list(step.next), ElementsAre(1, 0));
}

// Each rank wants both experts of the other one and may receive one at a time.
TEST(StepPlan, KeepsEveryExpertWhereACircleGoesThroughARankTwice) {
  const ExpertMap from = map_of({0, 1, 2, 3}, 2), to = map_of({2, 3, 1, 0}, 2);
  const MigrationStep first = next_step(from, to, 1);
  EXPECT_EQ(first.moves.size(), 2U);
  const MigrationStep second = next_step(first.next, to, 1);
  EXPECT_EQ(second.moves.size(), 2U);
  EXPECT_EQ(second.next, to);
}

TEST(StepPlan, ReceivesAnExpertOnceThatARankNeedsTwice) {
  const ExpertMap from = map_of({0, 0, 0, 1}, 2), to = map_of({0, 0, 0, 1}, 2);
  const ExpertMap twice = map_of({1, 1, 0, 1}, 2);
  EXPECT_EQ(records_to_receive(from, twice, 0), 1U);
  EXPECT_EQ(next_step(from, twice, 8).moves.size(), 1U);
  EXPECT_TRUE(next_step(from, to, 8).moves.empty());
}

std::size_t wanted_records(const ExpertMap& from, const ExpertMap& to) {
  const auto plan =
      *placement::plan_transfer(from.physical_to_logical(), to.physical_to_logical(), from.ranks());
  return placement::sent_records(plan);
}

// Every map on the way is made by ExpertMap::make, which refuses one that lacks an expert.
void expect_steps_hold(const ExpertMap& from, const ExpertMap& to, std::size_t max_records) {
  ExpertMap now = from;
  std::size_t moved = 0, steps = 0;
  while (now != to) {
    const MigrationStep step = next_step(now, to, max_records);
    std::vector<std::size_t> sent(now.ranks()), received(now.ranks());
    for (const RecordMove& move : step.moves) {
      ++received[move.to_rank];
      ++sent[move.from_rank];
      ASSERT_EQ(now.experts_on(move.from_rank)[move.from_slot], move.expert);
      ASSERT_NE(move.from_rank, move.to_rank);
    }
    ASSERT_LE(std::ranges::max(sent), max_records);
    ASSERT_LE(std::ranges::max(received), max_records);
    moved += step.moves.size();
    ASSERT_NE(step.next, now) << "a step that changes nothing never ends";
    ASSERT_LE(++steps, 4 * now.slots());
    now = step.next;
  }
  // plan_transfer counts the fewest: an expert once for each rank that shall have it and has not.
  EXPECT_EQ(moved, wanted_records(from, to));
}

TEST(StepPlan, ComesToAnyMapInBoundedStepsWithTheFewestRecords) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const MapShape shape = test::random_shape(1 + random() % 6, random);
    const ExpertMap from = test::random_map(shape, random() % 2 == 0, random);
    const ExpertMap to = test::random_map(shape, random() % 2 == 0, random);
    ASSERT_NO_FATAL_FAILURE(expect_steps_hold(from, to, 1 + random() % 4)) << "round " << round;
    std::size_t received = 0;
    for (std::size_t rank = 0; rank < shape.ranks; ++rank)
      received += records_to_receive(from, to, rank);
    ASSERT_EQ(received, wanted_records(from, to));
  }
}

}  // namespace
}  // namespace lode::eplb
