#include "lode/eplb/rebalancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lode/comm/thread_group.h"
#include "lode/eplb/test_banks.h"
#include "lode/eplb/test_faulty_group.h"
#include "lode/moe/exchange.h"
#include "lode/placement/balance.h"

namespace lode::eplb {
namespace {

using memory::Ledger;
using memory::Tag;
using test::Bank;
using test::ExpertMap;

constexpr std::uint64_t kRoomy = std::uint64_t{1} << 30;
constexpr std::size_t kLayers = 3, kExperts = 16, kRanks = 4, kSlots = 24, kRecordBytes = 50;
constexpr std::size_t kRows = 64, kTopK = 2;

Status hold(bool right, std::string_view what) {
  if (right) return {};
  return Error{.code = Code::kCheckFailed, .thing = std::string(what), .found = "it does not hold"};
}

RebalanceOptions options_of_tests() {
  RebalanceOptions options;
  options.interval_passes = 12;
  options.window_passes = 12;
  options.half_life_passes = 4;
  options.costs.seconds_per_row = 1e-3;
  options.migration = {.step_bytes = 2 * kRecordBytes, .checksums = true};
  return options;
}

/// Two experts of each row; three out of four rows want those of a hot set, which moves.
std::vector<std::int32_t> ids_of_pass(std::size_t pass, std::size_t layer, std::size_t hot) {
  std::mt19937 random(static_cast<unsigned>(pass * kLayers + layer + 1));
  std::vector<std::int32_t> ids;
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::size_t first = row % 4 == 0 ? random() % kExperts : (hot + random() % 2) % kExperts;
    const std::size_t second = (first + 1 + random() % (kExperts - 1)) % kExperts;
    ids.push_back(static_cast<std::int32_t>(first));
    ids.push_back(static_cast<std::int32_t>(second));
  }
  return ids;
}

// A rank with its banks, counting its own rows of the traffic.
class Rank {
 public:
  Rank(comm::Group& group, Ledger& ledger, bool whole_banks = false)
      : group_(group), ledger_(ledger) {
    const ExpertMap start = *placement::initial_map(kExperts, kSlots, kRanks);
    places_.emplace(group, std::vector<ExpertMap>(kLayers, start), whole_banks);
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      banks_.emplace_back(start, group.rank(), layer, kRecordBytes);
  }

  Result<Rebalancer> rebalancer(const RebalanceOptions& options) {
    std::vector<LayerBank> banks;
    for (Bank& bank : banks_) banks.push_back({bank.bytes(), kRecordBytes});
    return Rebalancer::make(*places_, ledger_, std::move(banks), options);
  }

  // Counts a pass; gives its balancedness under the maps that it ran with.
  double run_pass(Rebalancer& rebalancer, std::size_t pass, std::size_t hot) {
    std::vector<float> all(kLayers * kExperts);
    std::vector<ExpertMap> maps;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<std::int32_t> ids = ids_of_pass(pass, layer, hot + 5 * layer);
      for (const std::int32_t id : ids) all[layer * kExperts + static_cast<std::size_t>(id)] += 1;
      const moe::RowRange own = moe::rows_of_rank(kRows, kRanks, group_.rank());
      placement::count_experts(
          {std::span(ids).subspan(own.first * kTopK, own.count * kTopK), kTopK, own.count},
          rebalancer.pass_counts().subspan(layer * kExperts, kExperts));
      maps.push_back(places_->map(layer));
    }
    return placement::balance_of_maps(maps, all).balancedness();
  }

  std::size_t wrong_slots() const {
    std::size_t wrong = 0;
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      wrong += banks_[layer].wrong_slots(places_->map(layer), group_.rank());
    return wrong;
  }

  moe::ExpertPlaces& places() { return *places_; }
  std::vector<Bank>& banks() { return banks_; }

 private:
  comm::Group& group_;
  Ledger& ledger_;
  std::optional<moe::ExpertPlaces> places_;
  std::vector<Bank> banks_;
};

void on_ranks(parallel::FunctionRef<Status(comm::Group&, Ledger&)> body) {
  const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& group) -> Status {
    Ledger ledger(kRoomy);
    LODE_TRY_STATUS(body(group, ledger));
    return hold(ledger.held_bytes() == 0, "nothing stays held");
  });
  EXPECT_TRUE(status) << to_string(status.error());
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Rebalancer, RecoversTheBalanceOfTrafficWhoseHotSetShifts) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options_of_tests()));
    std::vector<double> balance;
    std::size_t decisions = 0, layers_done = 0;
    for (std::size_t pass = 0; pass < 120; ++pass) {
      balance.push_back(rank.run_pass(rebalancer, pass, pass < 60 ? 0 : 7));
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      LODE_TRY_STATUS(hold(!report.failure, "no migration fails"));
      LODE_TRY_STATUS(hold(rank.wrong_slots() == 0, "every slot holds its expert"));
      LODE_TRY_STATUS(hold(report.step.bytes_received <= 2 * kRecordBytes, "steps are bounded"));
      decisions += report.decision ? 1 : 0;
      layers_done += report.step.layer_done ? 1 : 0;
    }
    LODE_TRY_STATUS(rebalancer.finish());
    const auto mean = [&](std::size_t first, std::size_t count) {
      return mean_of(std::span(balance).subspan(first, count));
    };
    if (group.rank() == 0) {
      EXPECT_GE(decisions, 8U);
      EXPECT_GE(layers_done, 2 * kLayers);
      EXPECT_GT(mean(40, 20), mean(0, 3) + 0.15) << "balanced after the start";
      EXPECT_LT(mean(60, 3), mean(40, 20) - 0.1) << "the shift is felt";
      EXPECT_GT(mean(100, 20), mean(60, 3) + 0.15) << "and overcome";
    }
    return {};
  });
}

TEST(Rebalancer, DecidesAlikeOnAllRanksWhateverCostsTheOthersThinkOf) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    RebalanceOptions options = options_of_tests();
    if (group.rank() != 0) options.costs.seconds_per_row = 0;
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    std::size_t accepted = 0;
    for (std::size_t pass = 0; pass < 60; ++pass) {
      rank.run_pass(rebalancer, pass, pass / 20);
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      accepted += report.decision ? report.decision->accepted_layers : 0;
      for (std::size_t layer = 0; layer < kLayers; ++layer) {
        std::vector<std::int32_t> all(kRanks * kSlots);
        const auto mine = rank.places().map(layer).physical_to_logical();
        LODE_TRY_STATUS(
            group.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all))));
        for (std::size_t i = 0; i < all.size(); ++i)
          LODE_TRY_STATUS(hold(all[i] == mine[i % kSlots], "maps are the same on all ranks"));
      }
    }
    LODE_TRY_STATUS(hold(accepted > 0, "rank 0's costs count"));
    return rebalancer.finish();
  });
}

// The clock begins three quarters into its first interval of 12: looks after passes 2, 14, 26 (from
// 0 on), each of which sees the passes within 5 of it.
TEST(Rebalancer, CountsTheWindowBeforeEachLookAndNothingElse) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    RebalanceOptions options = options_of_tests();
    options.window_passes = 5;
    options.migration.step_bytes = kSlots * kRecordBytes;  // a layer a step
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    std::vector<std::size_t> looks, counted;
    for (std::size_t pass = 0; pass < 30; ++pass) {
      const double balance = rank.run_pass(rebalancer, pass, 0);
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      if (!report.decision) continue;
      looks.push_back(pass);
      counted.push_back(report.decision->counted_passes);
      LODE_TRY_STATUS(
          hold(report.decision->counted_choices == counted.back() * kLayers * kRows * kTopK,
               "every choice of every rank is counted once"));
      // Five passes of one kind of traffic are not far from one of them.
      LODE_TRY_STATUS(hold(std::abs(report.decision->balancedness_counted - balance) < 0.2,
                           "it is the balance of the passes"));
    }
    if (group.rank() == 0) {
      EXPECT_THAT(looks, testing::ElementsAre(2, 14, 26));
      EXPECT_THAT(counted, testing::ElementsAre(3, 5, 5));
    }
    return rebalancer.finish();
  });
}

TEST(Rebalancer, LooksAgainOnlyWhenEverythingHasCome) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    RebalanceOptions options = options_of_tests();
    options.interval_passes = 2;
    options.migration.step_bytes = kRecordBytes;
    options.costs.seconds_per_row = 1;
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    std::size_t left = 0, put_off = 0;
    for (std::size_t pass = 0; pass < 60; ++pass) {
      rank.run_pass(rebalancer, pass, pass);
      const bool was_moving = left > 1;  // one pass ends one layer at most
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      LODE_TRY_STATUS(hold(!was_moving || !report.decision, "layers are still to come"));
      left = report.layers_left;
      put_off += was_moving ? 1 : 0;
      LODE_TRY_STATUS(hold(left <= kLayers, "each layer is moved once"));
    }
    LODE_TRY_STATUS(hold(put_off > 10, "moving lasts longer than the interval"));
    return rebalancer.finish();
  });
}

TEST(Rebalancer, MovesNothingThatTakesMoreThanItSaves) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    RebalanceOptions options = options_of_tests();
    options.costs.bytes_per_second = 1;  // a minute a record
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    const ExpertMap start = rank.places().map(0);
    for (std::size_t pass = 0; pass < 40; ++pass) {
      rank.run_pass(rebalancer, pass, 0);
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      if (!report.decision) continue;
      for (const LayerDecision& layer : report.decision->layers) {
        LODE_TRY_STATUS(hold(!layer.verdict.accepted, "not worth it"));
        LODE_TRY_STATUS(hold(layer.verdict.saved_seconds > 0, "though something would be saved"));
      }
      LODE_TRY_STATUS(
          hold(report.decision->balancedness_after == report.decision->balancedness_before &&
                   report.layers_left == 0,
               "what is not accepted changes nothing"));
    }
    return hold(rank.places().map(0) == start, "the map stays");
  });
}

TEST(Rebalancer, HoldsItsTablesAndWhileExpertsMoveABuffer) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    const RebalanceOptions options = options_of_tests();
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    const BalancingCost cost = balancing_cost(
        {{kLayers, kExperts, kRanks}, kSlots / kRanks, kRecordBytes, options.migration.step_bytes});
    bool moved = false;
    for (std::size_t pass = 0; pass < 40; ++pass) {
      rank.run_pass(rebalancer, pass, 0);
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      const std::uint64_t staging = ledger.held_bytes(Tag::kStaging);
      moved = moved || staging > 0;
      LODE_TRY_STATUS(hold(ledger.held_bytes(Tag::kMetadata) == cost.table_bytes, "tables"));
      LODE_TRY_STATUS(hold(staging == 0 || staging == cost.moving_bytes, "the buffer"));
      LODE_TRY_STATUS(hold(report.layers_left > 0 || staging == 0, "which is for moving alone"));
      LODE_TRY_STATUS(hold(ledger.held_bytes(Tag::kPageTables) ==
                               cost.table_page_bytes + (staging > 0 ? cost.moving_page_bytes : 0),
                           "page tables"));
    }
    LODE_TRY_STATUS(hold(moved, "experts have moved"));
    return rebalancer.finish();
  });
}

TEST(Rebalancer, GoesByTheTimesOfAllRanksAlsoWhereTheFirstHasNone) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    RebalanceOptions options = options_of_tests();
    options.costs.seconds_per_row = 0;
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    placement::ExpertTimes times;
    times.add(8, 2, 8e-3);
    if (group.rank() == 3) rebalancer.set_times(times);
    std::size_t accepted = 0;
    for (std::size_t pass = 0; pass < 20; ++pass) {
      rank.run_pass(rebalancer, pass, 0);
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      if (report.decision) accepted += report.decision->accepted_layers;
    }
    LODE_TRY_STATUS(hold(accepted > 0, "layers move"));
    return rebalancer.finish();
  });
}

TEST(Rebalancer, ChangesMapsAloneAndAtOnceWhereAllRanksMapTheExperts) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger, true);
    std::vector<LayerBank> banks(kLayers, LayerBank{{}, kRecordBytes});
    RebalanceOptions options = options_of_tests();
    options.migration.step_bytes = 1;  // nothing moves
    options.costs.bytes_per_second = 1e-9;
    LODE_TRY(Rebalancer rebalancer,
             Rebalancer::make(rank.places(), ledger, std::move(banks), options));
    std::vector<double> balance;
    for (std::size_t pass = 0; pass < 16; ++pass) {
      balance.push_back(rank.run_pass(rebalancer, pass, 0));
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      LODE_TRY_STATUS(hold(report.layers_left == 0, "nothing is on its way"));
      LODE_TRY_STATUS(hold(ledger.held_bytes(Tag::kStaging) == 0, "no buffer"));
    }
    const std::span<const double> all = balance;  // the first look comes after 3 passes
    LODE_TRY_STATUS(
        hold(mean_of(all.subspan(3)) > mean_of(all.first(3)) + 0.15, "the balance recovers"));
    return rebalancer.finish();
  });
}

TEST(Rebalancer, AdoptsMapsThatItIsGivenWhateverTheySave) {
  on_ranks([](comm::Group& group, Ledger& ledger) -> Status {
    Rank rank(group, ledger);
    RebalanceOptions options = options_of_tests();
    options.interval_passes = 1000;
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options));
    std::mt19937 random(5);
    std::vector<ExpertMap> maps;
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      maps.push_back(test::random_map({kExperts, kSlots / kRanks, kRanks}, false, random));
    LODE_TRY_STATUS(rebalancer.adopt(maps));
    PassReport report;
    do {
      LODE_TRY(report, rebalancer.after_pass());
      LODE_TRY_STATUS(hold(!report.failure && !report.decision, "nothing is decided"));
    } while (report.layers_left > 0);
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      LODE_TRY_STATUS(hold(rank.places().map(layer) == maps[layer], "the map is adopted"));
    LODE_TRY_STATUS(hold(rank.wrong_slots() == 0, "every slot holds its expert"));
    maps.back() = *placement::initial_map(kExperts, kSlots + kRanks, kRanks);
    const Status other = rebalancer.adopt(maps);
    LODE_TRY_STATUS(hold(!other && other.error().code == Code::kUsage, "other slots are refused"));
    maps.back() = *placement::initial_map(kExperts, kSlots, kRanks);
    std::vector<ExpertMap> mine = maps;
    if (group.rank() == 2) std::swap(mine[0], mine[2]);
    const Status differs = rebalancer.adopt(mine);
    LODE_TRY_STATUS(hold(!differs && differs.error().code == Code::kUsage, "maps must be alike"));
    maps.pop_back();
    LODE_TRY_STATUS(hold(!rebalancer.adopt(maps), "a layer too few is refused"));
    return rebalancer.finish();
  });
}

TEST(Rebalancer, OfOneRankHoldsNothingAndDoesNothing) {
  Ledger ledger(0);
  const auto group = comm::make_single_group();
  moe::ExpertPlaces places(*group, {*placement::initial_map(4, 4, 1)}, false);
  auto rebalancer = Rebalancer::make(places, ledger, {}, {});
  ASSERT_TRUE(rebalancer);
  EXPECT_FALSE(rebalancer->active());
  EXPECT_FALSE(rebalancer->recording());
  EXPECT_TRUE(rebalancer->pass_counts().empty());
  const auto report = rebalancer->after_pass();
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->decision);
  EXPECT_TRUE(rebalancer->finish());
  EXPECT_EQ(balancing_cost({{1, 4, 1}, 4, 100, 1000}).table_bytes, 0U);
}

TEST(Rebalancer, IsRefusedOnAllRanksWhereOneHasNoRoomForIt) {
  // Loads, their page tables, maps, what moving would take and its page tables.
  for (const std::uint64_t refused : {0U, 1U, 2U, 3U, 4U}) {
    const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& group) -> Status {
      memory::FailingLedger ledger(kRoomy, group.rank() == 2 ? refused : 1000);
      Rank rank(group, ledger);
      const auto rebalancer = rank.rebalancer(options_of_tests());
      LODE_TRY_STATUS(hold(!rebalancer && rebalancer.error().code == Code::kOverBudget, "refused"));
      LODE_TRY_STATUS(hold(ledger.held_bytes() == 0, "nothing stays held"));
      return group.barrier();
    });
    EXPECT_TRUE(status) << to_string(status.error());
  }
}

TEST(Rebalancer, GoesOnAfterARefusedBufferWithTheOldMaps) {
  std::size_t failures = 0;
  const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& group) -> Status {
    memory::FailingLedger ledger(kRoomy, group.rank() == 1 ? 5 : 1000);  // behind the trial
    Rank rank(group, ledger);
    LODE_TRY(Rebalancer rebalancer, rank.rebalancer(options_of_tests()));
    std::size_t layers_done = 0;
    for (std::size_t pass = 0; pass < 60; ++pass) {
      rank.run_pass(rebalancer, pass, 0);
      LODE_TRY(const PassReport report, rebalancer.after_pass());
      if (report.failure) {
        LODE_TRY_STATUS(hold(report.failure->code == Code::kOverBudget, "its code"));
        LODE_TRY_STATUS(hold(report.layers_left == 0, "the rest is given up"));
        if (group.rank() == 0) ++failures;
      }
      LODE_TRY_STATUS(hold(rank.wrong_slots() == 0, "every slot holds its expert"));
      layers_done += report.step.layer_done ? 1 : 0;
    }
    LODE_TRY_STATUS(hold(layers_done > 0, "the next look moves experts"));
    return rebalancer.finish();
  });
  EXPECT_TRUE(status) << to_string(status.error());
  EXPECT_EQ(failures, 1U);
}

TEST(Rebalancer, RefusesWhatItCannotWorkWith) {
  const auto expect_usage =
      [](parallel::FunctionRef<void(Rank&, RebalanceOptions&, std::vector<LayerBank>&)> spoil) {
        on_ranks([&](comm::Group& group, Ledger& ledger) -> Status {
          Rank rank(group, ledger);
          RebalanceOptions options = options_of_tests();
          std::vector<LayerBank> banks;
          for (Bank& bank : rank.banks()) banks.push_back({bank.bytes(), kRecordBytes});
          spoil(rank, options, banks);
          const auto made = Rebalancer::make(rank.places(), ledger, std::move(banks), options);
          LODE_TRY_STATUS(hold(!made && made.error().code == Code::kUsage, "kUsage"));
          return group.barrier();
        });
      };
  expect_usage([](Rank&, RebalanceOptions&, auto& banks) { banks.pop_back(); });
  expect_usage([](Rank&, RebalanceOptions&, auto& banks) { banks[1].record_bytes = 49; });
  expect_usage([](Rank&, RebalanceOptions&, auto& banks) { banks[1].record_bytes = 0; });
  expect_usage([](Rank&, RebalanceOptions& options, auto&) { options.half_life_passes = 0; });
  expect_usage([](Rank&, RebalanceOptions& options, auto&) { options.nodes = 0; });
  expect_usage([](Rank&, RebalanceOptions& options, auto&) { options.migration.step_bytes = 49; });
  expect_usage([](Rank& rank, RebalanceOptions&, auto&) {
    rank.places().replace(1, *placement::initial_map(kExperts - 1, kSlots, kRanks));
  });
}

}  // namespace
}  // namespace lode::eplb
