#include "lode/eplb/migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/comm/thread_group.h"
#include "lode/eplb/test_moves.h"

namespace lode::eplb {
namespace {

using memory::Ledger;
using memory::Tag;
using test::Bank;
using test::ExpertMap;
using test::hold;

constexpr std::uint64_t kRoomy = std::uint64_t{1} << 30;

class RandomMaps : public testing::TestWithParam<std::size_t> {};

// 5 numbers of ranks x 250 pairs.
TEST_P(RandomMaps, AreReachedWithEveryRecordInItsSlot) {
  const Status status = comm::run_ranks(GetParam(), {}, [](comm::Group& group) {
    return test::experts_move(group, {.pairs = 250, .max_record_bytes = 90});
  });
  EXPECT_TRUE(status) << to_string(status.error());
}
INSTANTIATE_TEST_SUITE_P(Ranks, RandomMaps, testing::Values(1U, 2U, 3U, 4U, 8U));

const ExpertMap& four_experts() {
  static const ExpertMap map = *ExpertMap::make({0, 1, 2, 3}, 4, 2);
  return map;
}
const ExpertMap& four_exchanged() {
  static const ExpertMap map = *ExpertMap::make({2, 3, 1, 0}, 4, 2);
  return map;
}

// Runs `body` on two ranks with a layer of four experts in records of 100 bytes.
struct Two {
  comm::Group& group;
  Ledger& ledger;
  moe::ExpertPlaces& places;
  Bank& bank;
};
void on_two_ranks(parallel::FunctionRef<Status(Two)> body) {
  const Status status = comm::run_ranks(2, {}, [&](comm::Group& group) -> Status {
    Ledger ledger(kRoomy);
    moe::ExpertPlaces places(group, {four_experts()}, false);
    Bank bank(four_experts(), group.rank(), 0, 100);
    LODE_TRY_STATUS(body({group, ledger, places, bank}));
    return hold(ledger.held_bytes() == 0, "nothing stays held");
  });
  EXPECT_TRUE(status) << to_string(status.error());
}

// The error that begin() gives on both ranks.
Status expect_refused(Two two, const MigrationOptions& options, const LayerMove& move, Code code) {
  LODE_TRY(Migration migration, Migration::make(two.places, two.ledger, options));
  const Status status = migration.begin(move);
  LODE_TRY_STATUS(hold(!status && status.error().code == code, "begin refuses with its code"));
  LODE_TRY_STATUS(hold(!migration.busy(), "what is refused leaves it idle"));
  LODE_TRY_STATUS(hold(two.places.map(0) == four_experts(), "the old map stays"));
  LODE_TRY_STATUS(hold(two.bank.wrong_slots(four_experts(), two.group.rank()) == 0, "weights too"));
  return two.group.barrier();  // the group lives on
}

TEST(Migration, RefusesAStepSmallerThanARecord) {
  on_two_ranks([](Two two) {
    return expect_refused(two, {.step_bytes = 99}, {0, four_exchanged(), two.bank.bytes(), 100},
                          Code::kUsage);
  });
}

TEST(Migration, RefusesABankWithoutARecordForEverySlot) {
  on_two_ranks([](Two two) {
    return expect_refused(two, {}, {0, four_exchanged(), two.bank.bytes().first(100), 100},
                          Code::kUsage);
  });
}

TEST(Migration, RefusesRecordsOfNoBytes) {
  on_two_ranks([](Two two) {
    return expect_refused(two, {}, {0, four_exchanged(), two.bank.bytes(), 0}, Code::kUsage);
  });
}

TEST(Migration, RefusesAMapOfOtherSizes) {
  on_two_ranks([](Two two) {
    return expect_refused(two, {},
                          {0, *ExpertMap::make({0, 1, 2, 3, 0, 1}, 4, 2), two.bank.bytes(), 100},
                          Code::kUsage);
  });
}

TEST(Migration, RefusesOnAllRanksWhatOnlyOneCannotDo) {
  on_two_ranks([](Two two) {
    const std::size_t bytes = two.group.rank() == 1 ? 100 : 200;
    return expect_refused(two, {}, {0, four_exchanged(), two.bank.bytes().first(bytes), 100},
                          Code::kUsage);
  });
}

TEST(Migration, RefusesToMoveOtherwiseThanOtherRanks) {
  on_two_ranks([](Two two) {
    const ExpertMap other = *ExpertMap::make({2, 3, 0, 1}, 4, 2);
    const ExpertMap& target = two.group.rank() == 1 ? other : four_exchanged();
    return expect_refused(two, {}, {0, target, two.bank.bytes(), 100}, Code::kOther);
  });
}

TEST(Migration, ThatChangesNothingIsNotBegun) {
  on_two_ranks([](Two two) -> Status {
    LODE_TRY(Migration migration, Migration::make(two.places, two.ledger, {}));
    LODE_TRY_STATUS(migration.begin({0, four_experts(), two.bank.bytes(), 100}));
    LODE_TRY_STATUS(hold(!migration.busy(), "idle"));
    LODE_TRY(const StepReport report, migration.step());
    return hold(!report.committed && !report.layer_done, "an idle step does nothing");
  });
}

TEST(Migration, ThatIsDrainedLeavesTheOldMapAndWeights) {
  on_two_ranks([](Two two) -> Status {
    LODE_TRY(Migration migration, Migration::make(two.places, two.ledger, {}));
    LODE_TRY_STATUS(migration.begin({0, four_exchanged(), two.bank.bytes(), 100}));
    LODE_TRY_STATUS(hold(two.ledger.held_bytes() > 0, "it holds its buffer"));
    LODE_TRY_STATUS(migration.drain());
    LODE_TRY_STATUS(hold(two.places.map(0) == four_experts() && !migration.busy(), "old map"));
    LODE_TRY_STATUS(hold(two.bank.wrong_slots(four_experts(), two.group.rank()) == 0, "weights"));
    // And it can be begun anew.
    LODE_TRY_STATUS(migration.begin({0, four_exchanged(), two.bank.bytes(), 100}));
    LODE_TRY_STATUS(test::move_all(migration));
    return hold(two.bank.wrong_slots(four_exchanged(), two.group.rank()) == 0, "new weights");
  });
}

TEST(Migration, WeightsAndMapStayUntilAStepIsCommitted) {
  on_two_ranks([](Two two) -> Status {
    LODE_TRY(Migration migration, Migration::make(two.places, two.ledger, {}));
    LODE_TRY_STATUS(migration.begin({0, four_exchanged(), two.bank.bytes(), 100}));
    LODE_TRY_STATUS(hold(two.bank.wrong_slots(four_experts(), two.group.rank()) == 0, "weights"));
    LODE_TRY_STATUS(hold(two.places.map(0) == four_experts(), "map"));
    return migration.drain();
  });
}

TEST(Migration, CostsNoMoreThanTheSlotsOfARankOrAStep) {
  const memory::BufferCost slots = memory::buffer_cost(9 * 1000);
  EXPECT_EQ(migration_cost(9, 1000, 1 << 30).tag_bytes, slots.tag_bytes);
  EXPECT_EQ(migration_cost(9, 1000, 4500).tag_bytes, memory::buffer_cost(4000).tag_bytes);
  EXPECT_EQ(migration_cost(9, 0, 4500).tag_bytes, 0U);
}

}  // namespace
}  // namespace lode::eplb
