#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "lode/base/bytes.h"
#include "lode/comm/thread_group.h"
#include "lode/eplb/migration.h"
#include "lode/eplb/test_banks.h"
#include "lode/loader/execute.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/synthetic_weights.h"

namespace lode::eplb {
namespace {

using loader::WeightSet;
using placement::ExpertMap;
using testing_support::ExpertStorage;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

constexpr std::size_t kExperts = 7, kSlotsPerRank = 3, kRanks = 4, kLayers = 2;

// Records as the loader makes them, moved by random maps and compared with those of a rank that
// loaded all experts.
class RealRecords : public testing::TestWithParam<ExpertStorage> {
 protected:
  Result<WeightSet> load(memory::Ledger& ledger, const loader::ExpertSlots& slots) {
    LODE_TRY(const auto index, source_.index());
    // ThreadSanitizer does not see that io_uring's library unmaps a ring where the next one is
    // mapped.
    const loader::LoadPolicy policy{.io = io::IoKind::kBuffered, .movable_experts = !slots.empty()};
    LODE_TRY(const auto plan,
             loader::plan_load(source_.binding(), source_.spec(), index, policy, slots));
    LODE_TRY(const auto engine, loader::make_engine(plan));
    return loader::execute(plan, source_.binding(), ledger, *engine);
  }

  static std::size_t wrong_slots(std::span<const std::byte> bank, const ExpertMap& map,
                                 std::size_t rank, const loader::ExpertBank& all) {
    const std::size_t bytes = all.record.record_bytes;
    std::size_t wrong = 0;
    for (std::size_t slot = 0; slot < kSlotsPerRank; ++slot) {
      const auto expert = static_cast<std::size_t>(map.experts_on(rank)[slot]);
      const auto want = all.bytes.subspan(expert * bytes, bytes);
      wrong += std::ranges::equal(bank.subspan(slot * bytes, bytes), want) ? 0 : 1;
    }
    return wrong;
  }

  TempFolder folder_;
  SyntheticWeights source_{{.storage = GetParam(),
                            .layers = kLayers,
                            .experts = kExperts,
                            .hidden = 64,
                            .intermediate = 32,
                            .vocab = 32,
                            .bias = true},
                           folder_.path() / "model.safetensors"};
};

TEST_P(RealRecords, LieWhereEveryOfManyRandomMapsWantsThem) {
  memory::Ledger whole_ledger(kGiB);
  const auto whole = load(whole_ledger, {});
  ASSERT_TRUE(whole) << to_string(whole.error());
  constexpr std::size_t kMaps = 340;  // of each of three storages: more than 1,000 pairs
  std::array<std::size_t, kRanks> moved{};
  const Status done = comm::run_ranks(kRanks, {}, [&](comm::Group& group) -> Status {
    const std::size_t rank = group.rank();
    const ExpertMap start = *placement::initial_map(kExperts, kSlotsPerRank * kRanks, kRanks);
    moe::ExpertPlaces places(group, std::vector<ExpertMap>(kLayers, start), false);
    memory::Ledger ledger(kGiB);
    const auto experts = moe::experts_of_rank(start, rank);
    LODE_TRY(WeightSet weights, load(ledger, {experts, experts}));
    const std::uint64_t record_bytes = whole->experts(0).record.record_bytes;
    LODE_TRY(Migration migration,
             Migration::make(places, ledger, {.step_bytes = 2 * record_bytes, .checksums = true}));
    std::mt19937 random(11);  // the same maps on every rank
    for (std::size_t i = 0; i < kMaps; ++i) {
      const auto layer = static_cast<std::uint32_t>(i % kLayers);
      const ExpertMap next = test::random_map({kExperts, kSlotsPerRank, kRanks}, false, random);
      LODE_TRY_STATUS(
          migration.begin({layer, next, weights.writable_experts(layer), record_bytes}));
      LODE_TRY_STATUS(test::move_all(migration));
      const std::size_t wrong =
          wrong_slots(weights.experts(layer).bytes, next, rank, whole->experts(layer));
      if (wrong != 0 || !(places.map(layer) == next))
        return Error{.code = Code::kCheckFailed,
                     .thing = "slots of map " + std::to_string(i),
                     .found = std::to_string(wrong) + " hold another expert"};
      ++moved[rank];
    }
    return {};
  });
  EXPECT_TRUE(done) << to_string(done.error());
  for (const std::size_t maps : moved) EXPECT_EQ(maps, kMaps);
}

INSTANTIATE_TEST_SUITE_P(Storages, RealRecords,
                         testing::Values(ExpertStorage::kNvfp4, ExpertStorage::kMxfp4Interleaved,
                                         ExpertStorage::kFp8Block));

}  // namespace
}  // namespace lode::eplb
