#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lode/comm/thread_group.h"
#include "lode/eplb/migration.h"
#include "lode/eplb/test_banks.h"
#include "lode/eplb/test_faulty_group.h"

namespace lode::eplb {
namespace {

using memory::FailingLedger;
using memory::Ledger;
using test::Bank;
using test::ExpertMap;
using test::Faults;
using test::FaultyGroup;
using testing::HasSubstr;

constexpr std::uint64_t kRoomy = std::uint64_t{1} << 30;
constexpr std::size_t kRanks = 3, kRecordBytes = 70;

Status hold(bool right, std::string_view what) {
  if (right) return {};
  return Error{.code = Code::kCheckFailed, .thing = std::string(what), .found = "it does not hold"};
}

struct Maps {
  ExpertMap from, to;
};

// One record a rank moves at once, so each takes several steps, with replicas and circles.
std::vector<Maps> several_maps() {
  std::mt19937 random(11);
  std::vector<Maps> maps;
  for (const std::size_t experts : {15U, 9U, 12U}) {
    const test::MapShape shape{experts, 5, kRanks};
    maps.push_back(
        {test::random_map(shape, false, random), test::random_map(shape, false, random)});
  }
  return maps;
}

constexpr MigrationOptions kOptions{.step_bytes = kRecordBytes, .checksums = true};

// What one rank is left with.
struct Left {
  std::vector<std::int32_t> map;
  std::size_t wrong_slots = 0;
  std::uint64_t held_bytes = 0;
};

struct Rank {
  comm::Group& group;
  Ledger& ledger;
  const Maps& maps;
  Left& left;
};

std::vector<std::int32_t> list(const ExpertMap& map) {
  return {map.physical_to_logical().begin(), map.physical_to_logical().end()};
}

// The whole migration of one rank; `left` is filled whatever comes of it.
Status migrate(const Rank& rank, parallel::FunctionRef<Status(Migration&, Bank&)> run) {
  moe::ExpertPlaces places(rank.group, {rank.maps.from}, false);
  Bank bank(rank.maps.from, rank.group.rank(), 0, kRecordBytes);
  Status status;
  {
    Result<Migration> migration = Migration::make(places, rank.ledger, kOptions);
    status = migration ? run(*migration, bank) : Status(migration.error());
    if (migration && !status) {
      LODE_TRY_STATUS(hold(!migration->busy(), "after an error it is idle"));
      LODE_TRY_STATUS(hold(rank.ledger.held_bytes() == 0, "and holds nothing"));
    }
  }
  rank.left = {list(places.map(0)), bank.wrong_slots(places.map(0), rank.group.rank()),
               rank.ledger.held_bytes()};
  return status;
}

Status whole(Migration& migration, Bank& bank, const ExpertMap& target) {
  LODE_TRY_STATUS(migration.begin({0, target, bank.bytes(), kRecordBytes}));
  return test::move_all(migration);
}

// All maps that are committed on the way.
std::vector<std::vector<std::int32_t>> maps_on_the_way(const Maps& maps) {
  std::vector<std::vector<std::int32_t>> all = {list(maps.from)};
  ExpertMap now = maps.from;
  while (now != maps.to) {
    now = next_step(now, maps.to, 1).next;
    all.push_back(list(now));
  }
  return all;
}

void expect_consistent(const std::vector<Left>& left, const Maps& maps) {
  const auto valid = maps_on_the_way(maps);
  for (const Left& one : left) {
    EXPECT_EQ(one.wrong_slots, 0U);
    EXPECT_EQ(one.held_bytes, 0U);
    EXPECT_THAT(valid, testing::Contains(one.map));
  }
}

// Whether the rank came as far as the call in which it was to die.
bool dies(const Maps& maps, std::size_t victim, std::size_t call) {
  std::vector<Left> left(kRanks);
  const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& inner) {
    Faults faults;
    if (inner.rank() == victim) faults.dies_in_call = call;
    FaultyGroup group(inner, faults);
    Ledger ledger(kRoomy);
    return migrate(
        {group, ledger, maps, left[inner.rank()]},
        [&](Migration& migration, Bank& bank) { return whole(migration, bank, maps.to); });
  });
  expect_consistent(left, maps);
  if (status) {
    for (const Left& one : left) EXPECT_EQ(one.map, list(maps.to));
    return false;
  }
  EXPECT_EQ(status.error().code, Code::kInterrupted);
  EXPECT_EQ(status.error().thing, "this rank was killed");
  EXPECT_THAT(status.error().where, HasSubstr("rank " + std::to_string(victim)));
  return true;
}

TEST(InterruptedMigration, LeavesAValidMapAndItsWeightsWhereverARankIsKilled) {
  for (const Maps& maps : several_maps()) {
    for (std::size_t victim = 0; victim < kRanks; ++victim) {
      std::size_t call = 0;
      while (dies(maps, victim, call)) ++call;
      EXPECT_GE(call, 8U) << "it was killed in every call";
    }
  }
}

// A rank that goes away between two passes, without a word.
TEST(InterruptedMigration, TellsOfARankThatLeavesBetweenTwoSteps) {
  const Maps maps = several_maps()[0];
  const std::size_t steps = maps_on_the_way(maps).size() - 1;
  ASSERT_GE(steps, 3U);
  for (std::size_t last = 0; last < steps; ++last) {
    std::vector<Left> left(kRanks);
    const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& group) {
      Ledger ledger(kRoomy);
      return migrate({group, ledger, maps, left[group.rank()]},
                     [&](Migration& migration, Bank& bank) -> Status {
                       if (group.rank() != 1) return whole(migration, bank, maps.to);
                       LODE_TRY_STATUS(migration.begin({0, maps.to, bank.bytes(), kRecordBytes}));
                       for (std::size_t step = 0; step < last;) {
                         LODE_TRY(const StepReport report, migration.step());
                         step += report.committed ? 1 : 0;
                       }
                       return {};
                     });
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kPeerLost) << to_string(status.error());
    expect_consistent(left, maps);
  }
}

// After a failure that is not the group's: the same error everywhere, then it works.
struct Survived {
  Status first, second;
  std::vector<std::int32_t> map_between;
  std::size_t wrong_between = 0;
};

Status fails_then_works(const Rank& rank, Survived& survived) {
  moe::ExpertPlaces places(rank.group, {rank.maps.from}, false);
  const std::size_t here = rank.group.rank();
  Bank bank(rank.maps.from, here, 0, kRecordBytes);
  LODE_TRY(Migration migration, Migration::make(places, rank.ledger, kOptions));
  survived.first = whole(migration, bank, rank.maps.to);
  survived.map_between = list(places.map(0));
  survived.wrong_between = bank.wrong_slots(places.map(0), here);
  LODE_TRY_STATUS(hold(!migration.busy() && rank.ledger.held_bytes() == 0, "idle, nothing held"));
  survived.second = whole(migration, bank, rank.maps.to);
  rank.left = {list(places.map(0)), bank.wrong_slots(places.map(0), here),
               rank.ledger.held_bytes()};
  return rank.group.barrier();
}

void expect_survived(const std::vector<Survived>& all, const std::vector<Left>& left,
                     const Maps& maps) {
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_FALSE(all[rank].first);
    EXPECT_EQ(to_string(all[rank].first.error()), to_string(all[0].first.error()));
    EXPECT_EQ(all[rank].map_between, all[0].map_between);
    EXPECT_EQ(all[rank].wrong_between, 0U);
    EXPECT_TRUE(all[rank].second);
    EXPECT_EQ(left[rank].map, list(maps.to));
    EXPECT_EQ(left[rank].wrong_slots, 0U);
  }
}

TEST(InterruptedMigration, KeepsTheOldMapOnAllRanksWhereOneIsRefusedAReservation) {
  for (const Maps& maps : several_maps()) {
    for (std::size_t victim = 0; victim < kRanks; ++victim) {
      for (const std::uint64_t refused : {0U, 1U}) {  // the buffer, its page tables
        std::vector<Survived> all(kRanks);
        std::vector<Left> left(kRanks);
        const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& group) {
          FailingLedger ledger(kRoomy, group.rank() == victim ? refused : 1000);
          return fails_then_works({group, ledger, maps, left[group.rank()]}, all[group.rank()]);
        });
        ASSERT_TRUE(status) << to_string(status.error());
        expect_survived(all, left, maps);
        EXPECT_EQ(all[0].first.error().code, Code::kOverBudget);
        EXPECT_THAT(all[0].first.error().where, HasSubstr("rank " + std::to_string(victim)));
        EXPECT_EQ(all[0].map_between, list(maps.from));
      }
    }
  }
}

// Sends of records and of their sums in turn; either of them may be what does not come well.
TEST(InterruptedMigration, TakesNoRecordThatWasCorruptedOnItsWay) {
  std::size_t corrupted = 0;
  for (const Maps& maps : several_maps()) {
    for (std::size_t send = 0; send < 12; ++send) {
      std::vector<Survived> all(kRanks);
      std::vector<Left> left(kRanks);
      std::atomic<bool> came_so_far = false;
      const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& inner) {
        Faults faults;
        if (inner.rank() == 2) faults.corrupts_send = send;
        FaultyGroup group(inner, faults);
        Ledger ledger(kRoomy);
        const Status run =
            fails_then_works({group, ledger, maps, left[inner.rank()]}, all[inner.rank()]);
        if (inner.rank() == 2) came_so_far = !all[2].first;
        return run;
      });
      ASSERT_TRUE(status) << to_string(status.error());
      if (!came_so_far) break;
      ++corrupted;
      expect_survived(all, left, maps);
      EXPECT_EQ(all[0].first.error().code, Code::kCheckFailed);
      EXPECT_THAT(all[0].first.error().thing, HasSubstr("from rank 2"));
      EXPECT_THAT(maps_on_the_way(maps), testing::Contains(all[0].map_between));
    }
  }
  EXPECT_GE(corrupted, 12U);
}

}  // namespace
}  // namespace lode::eplb
