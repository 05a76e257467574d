#include "lode/engine/balancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/comm/thread_group.h"
#include "lode/engine/engine.h"
#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

using memory::Tag;
using placement::Policy;

// A model over ranks, as one of them is set.
struct Trial {
  std::filesystem::path folder = story_folder();
  std::uint32_t ranks = 2;
  std::uint32_t redundant_experts = 0;
  std::optional<BalanceSettings> balance{};
};

// Moves whatever saves anything, and soon.
BalanceSettings eager(Policy policy = Policy::kBest) {
  return {.policy = policy,
          .interval_passes = 3,
          .half_life_passes = 2,
          .threshold = 0,
          .checksums = true};
}

Settings settings_of(const Trial& trial, std::size_t rank) {
  Settings settings;
  settings.context_tokens = 64;
  settings.threads = 1;
  settings.ranks = {.ranks = trial.ranks,
                    .rank = static_cast<std::uint32_t>(rank),
                    .ranks_here = trial.ranks,
                    .redundant_experts = trial.redundant_experts,
                    .balance = trial.balance};
  return settings;
}

// Runs `body` with the engine of each rank, whose ledger has room for the plan and no more.
using Body = parallel::FunctionRef<Status(Engine&, const memory::Ledger&, const RunPlan&)>;
void on_engines(const Trial& trial, Body body) {
  const Status done = comm::run_ranks(trial.ranks, {}, [&](comm::Group& group) -> Status {
    const Settings settings = settings_of(trial, group.rank());
    const RunPlan plan = plan_of(source_of(trial.folder), settings);
    memory::Ledger ledger(plan.peak_bytes());
    LODE_TRY(const auto engine,
             Engine::start(source_of(trial.folder), plan, ledger, nullptr, &group));
    return body(*engine, ledger, plan);
  });
  EXPECT_TRUE(done) << to_string(done.error());
}

// Tokens that change what is hot, eight passes by eight, and what the model says after each.
Result<std::vector<float>> run_shifting(Engine& engine) {
  std::vector<float> all;
  const std::span<float> row = engine.logits().first(engine.source().spec.vocab);
  for (std::int32_t pass = 0; pass < 40; ++pass) {
    const std::int32_t token = 5 + 37 * (pass / 8);
    LODE_TRY_STATUS(engine.forward(std::span(&token, 1), model::Logits::kLast, row));
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::vector<float> logits_of_one_rank(const std::filesystem::path& folder) {
  const TestEngine one = start_engine(folder, settings_of({.ranks = 1}, 0));
  return *run_shifting(*one.engine);
}

TEST(Balancer, LeavesEveryBitAsItIsWhileExpertsMoveUnderAShiftingHotSet) {
  const std::vector<float> want = logits_of_one_rank(story_folder());
  for (const auto& [ranks, redundant, policy] : {std::tuple{2U, 0U, Policy::kBest},
                                                 {2U, 4U, Policy::kDeepSeek},
                                                 {4U, 8U, Policy::kBest},
                                                 {8U, 0U, Policy::kBest},
                                                 {4U, 0U, Policy::kIdentity}}) {
    std::uint64_t moved = 0;
    on_engines({.ranks = ranks, .redundant_experts = redundant, .balance = eager(policy)},
               [&](Engine& engine, const memory::Ledger&, const RunPlan& plan) -> Status {
                 LODE_TRY(const std::vector<float> logits, run_shifting(engine));
                 LODE_TRY(const BalanceLog log, engine.balancer()->finish());
                 if (log.failures != 0)
                   return Error{.code = Code::kOther, .thing = log.last_failure};
                 if (logits != want)
                   return Error{.code = Code::kCheckFailed, .thing = "logits", .found = "others"};
                 if (engine.source().spec.num_layers != log.layers)
                   return Error{.code = Code::kCheckFailed, .thing = "layers"};
                 if (plan.settings.ranks.rank == 0) moved = log.layers_moved;
                 return {};
               });
    EXPECT_EQ(moved > 0, policy != Policy::kIdentity) << ranks << " ranks";
  }
}

TEST(Balancer, CountsEveryChoiceOnceAndEveryRowWhereItIsComputed) {
  on_engines({.ranks = 4, .balance = eager()},
             [](Engine& engine, const memory::Ledger&, const RunPlan&) -> Status {
               LODE_TRY(const std::vector<float> logits, run_shifting(engine));
               LODE_TRY(const BalanceLog log, engine.balancer()->finish());
               const families::ModelSpec& spec = engine.source().spec;
               std::uint64_t rows = 0;
               for (const LayerFigures& layer : log.layer_figures) rows += layer.rows;
               EXPECT_EQ(rows, 40U * spec.num_layers * spec.router.top_k);
               EXPECT_EQ(log.passes, 40U);
               EXPECT_GT(log.costs().seconds_per_layer, 0);
               return {};
             });
}

// Every layer's slots the other way round, so that all of them change.
std::vector<placement::ExpertMap> reversed(const std::vector<placement::ExpertMap>& maps) {
  std::vector<placement::ExpertMap> all;
  for (const placement::ExpertMap& map : maps) {
    const auto slots = map.physical_to_logical();
    all.push_back(
        *placement::ExpertMap::make({slots.rbegin(), slots.rend()}, map.experts(), map.ranks()));
  }
  return all;
}

// What a rank holds once it has started, and at most while it runs.
struct Held {
  std::uint64_t started = 0, peak = 0;
  std::uint64_t tables = 0, moving = 0;  // that balancing was planned to take
};
std::vector<Held> held_by(const Trial& trial) {
  std::vector<Held> all(trial.ranks);
  on_engines(trial,
             [&](Engine& engine, const memory::Ledger& ledger, const RunPlan& plan) -> Status {
               Held& held = all[plan.settings.ranks.rank];
               held.started = ledger.held_bytes();
               EXPECT_EQ(ledger.stages(), plan.stages);
               LODE_TRY(const std::vector<float> logits, run_shifting(engine));
               if (engine.balancer() != nullptr) {
                 LODE_TRY_STATUS(engine.balancer()->adopt(reversed(plan.maps)));
                 LODE_TRY_STATUS(engine.balancer()->settle([] { return true; }));
                 LODE_TRY(const BalanceLog log, engine.balancer()->finish());
                 EXPECT_GT(log.layers_moved, 0U);
               }
               held.peak = ledger.peak_bytes();
               EXPECT_EQ(ledger.held_bytes(), held.started) << "nothing stays of what moved";
               if (!trial.balance) return {};
               std::uint64_t record_bytes = 0;
               for (std::uint32_t layer = 0; layer < engine.source().spec.num_layers; ++layer)
                 record_bytes = std::max<std::uint64_t>(
                     record_bytes, engine.weights().experts(layer).record.record_bytes);
               const auto cost = balancing_cost(plan.maps, record_bytes, *trial.balance);
               held.tables = cost.table_bytes + cost.table_page_bytes;
               held.moving = cost.moving_bytes + cost.moving_page_bytes;
               return {};
             });
  return all;
}

class BalancerOfStorages : public testing::TestWithParam<const char*> {};

TEST_P(BalancerOfStorages, HoldsItsTablesAndABufferAndNotAByteMore) {
  Trial trial{.folder = golden_folder(std::string("quantised/") + GetParam()), .ranks = 2};
  const std::vector<Held> off = held_by(trial);
  trial.balance = eager();
  const std::vector<Held> on = held_by(trial);
  for (std::size_t rank = 0; rank < trial.ranks; ++rank) {
    EXPECT_GT(on[rank].tables, 0U);
    EXPECT_GT(on[rank].moving, 0U);
    EXPECT_EQ(on[rank].started, off[rank].started + on[rank].tables);
    EXPECT_LE(on[rank].peak, std::max(off[rank].peak, on[rank].started + on[rank].moving));
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, BalancerOfStorages,
                         testing::Values("ct_fp8_tensor", "ct_fp8_channel", "ct_fp8_block",
                                         "modelopt_nvfp4"));

TEST(Balancer, IsRefusedWhereItsBudgetHasNoRoomForWhatMovingTakes) {
  const Trial trial{.balance = eager()};
  std::vector<Status> all(trial.ranks);
  (void)comm::run_ranks(trial.ranks, {}, [&](comm::Group& group) -> Status {
    const RunPlan plan = plan_of(source_of(trial.folder), settings_of(trial, group.rank()));
    memory::Ledger ledger(plan.peak_bytes() - (group.rank() == 1 ? 1 : 0));
    auto engine = Engine::start(source_of(trial.folder), plan, ledger, nullptr, &group);
    if (!engine) all[group.rank()] = engine.error();
    return {};
  });
  for (const Status& one : all) {
    ASSERT_FALSE(one);
    EXPECT_EQ(one.error().code, Code::kOverBudget);
  }
}

TEST(Balancer, IsRefusedWhereSlotsAreEmpty) {
  const Trial trial{.ranks = 3, .balance = eager()};
  const auto plan = plan_run(source_of(trial.folder), settings_of(trial, 0), test_machine());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kUsage);
  EXPECT_THAT(to_string(plan.error()), testing::HasSubstr("--redundant-experts 2"));
}

}  // namespace
}  // namespace lode::engine
