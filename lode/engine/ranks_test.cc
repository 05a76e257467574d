#include "lode/engine/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "lode/comm/thread_group.h"
#include "lode/engine/engine.h"
#include "lode/engine/test_engine.h"
#include "lode/moe/expert_places.h"

namespace lode::engine {
namespace {

using ::testing::HasSubstr;

const Source& story_source() {
  static const Source source = source_of(story_folder());
  return source;
}

families::ModelSpec spec_of(std::uint32_t experts, std::uint32_t layers = 2) {
  families::ModelSpec spec;
  spec.num_layers = layers;
  spec.router.num_experts = experts;
  return spec;
}

TEST(ExpertMaps, DealEveryExpertOnceAndTheRestToTheFirstRanks) {
  const auto maps = *expert_maps(spec_of(5), {.ranks = 2});
  ASSERT_EQ(maps.size(), 2U);
  const loader::ExpertSlots first = slots_of(maps, 0), second = slots_of(maps, 1);
  EXPECT_EQ(first[1], (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(second[1], (std::vector<std::uint32_t>{3, 4}));
  EXPECT_TRUE(slots_of(*expert_maps(spec_of(3), {.ranks = 5}), 4)[0].empty());
  EXPECT_TRUE(expert_maps(spec_of(5), {})->empty());
}

TEST(ExpertMaps, RepeatTheFirstExpertsInRedundantSlots) {
  const auto maps = *expert_maps(spec_of(4), {.ranks = 2, .redundant_experts = 2});
  EXPECT_EQ(slots_of(maps, 1)[0], (std::vector<std::uint32_t>{3, 0, 1}));
}

TEST(ExpertMaps, RefuseWhatCannotBeByName) {
  const auto error = [](const families::ModelSpec& spec, const RankSettings& settings) {
    return to_string(expert_maps(spec, settings).error());
  };
  EXPECT_THAT(error(spec_of(4), {.ranks = 2, .redundant_experts = 1}), HasSubstr("multiple of 2"));
  EXPECT_THAT(error(spec_of(0), {.ranks = 2}), HasSubstr("no routed experts"));
  EXPECT_THAT(error(spec_of(4), {.ranks = 2, .order = placement::Order::kRoundRobin}),
              HasSubstr("--placement round-robin"));
}

TEST(ExpertMaps, TakeTheBytesOfTheirTables) {
  const auto maps = *expert_maps(spec_of(4, 3), {.ranks = 2, .redundant_experts = 2});
  // Of a layer: 6 slots, 6 in the list, 5 beginnings; for the nearest replicas 5 and at most 6.
  EXPECT_EQ(table_bytes(maps), 3U * (6 + 6 + 5 + 5 + 6) * 4);
}

TEST(RankSettingsOfAGroup, CountTheRanksOfTheMachine) {
  std::array<RankSettings, 4> all;
  const Status done = comm::run_ranks(4, {.ranks_per_node = 2}, [&](comm::Group& group) -> Status {
    all[group.rank()] = settings_of(group, true);
    return {};
  });
  ASSERT_TRUE(done) << to_string(done.error());
  EXPECT_EQ(all[3].ranks, 4U);
  EXPECT_EQ(all[3].rank, 3U);
  EXPECT_EQ(all[3].first_here, 2U);
  EXPECT_EQ(all[3].ranks_here, 2U);
}

TEST(CheckSame, NamesTheFirstRankThatDiffers) {
  std::array<Status, 3> all;
  (void)comm::run_ranks(3, {}, [&](comm::Group& group) {
    return all[group.rank()] = check_same(group, group.rank() == 0 ? "a" : "b");
  });
  for (const Status& one : all) {
    ASSERT_FALSE(one);
    EXPECT_EQ(one.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(one.error()), HasSubstr("rank 1: want the checkpoint"));
  }
  const Status same =
      comm::run_ranks(3, {}, [](comm::Group& group) { return check_same(group, "a"); });
  EXPECT_TRUE(same);
}

Settings over_ranks(std::uint32_t ranks, std::uint32_t rank) {
  Settings settings;
  settings.context_tokens = 64;
  settings.ranks = {.ranks = ranks, .rank = rank, .ranks_here = ranks};
  return settings;
}

TEST(PlanOfRanks, LeavesEachWhatTheOthersDoNotNeed) {
  std::uint64_t sum = 0;
  std::vector<RunPlan> plans;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    Settings settings = over_ranks(3, rank);
    settings.memory_bytes = 1 << 30;
    plans.push_back(*plan_run(story_source(), settings, test_machine()));
    sum += plans.back().peak_bytes();
  }
  for (const RunPlan& plan : plans) {
    EXPECT_EQ(plan.other_ranks_bytes, sum - plan.peak_bytes());
    EXPECT_EQ(plan.budget.limit_bytes, (1U << 30) - plan.other_ranks_bytes);
  }
  const RunPlan alone = *plan_run(story_source(), over_ranks(1, 0), test_machine());
  EXPECT_LT(plans[1].load.weight_bytes(), alone.load.weight_bytes());
}

TEST(PlanOfRanks, RefusesAContextThatIsToBeFound) {
  Settings settings = over_ranks(2, 0);
  settings.context_tokens = 0;
  settings.context_auto = true;
  const auto plan = plan_run(story_source(), settings, test_machine());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kUsage);
}

TEST(EngineOverRanks, EndsAllWithTheErrorOfTheFirstThatCannotStart) {
  std::array<Status, 2> all;
  std::array<std::uint64_t, 2> held{1, 1};
  (void)comm::run_ranks(2, {}, [&](comm::Group& group) -> Status {
    Settings settings = over_ranks(2, static_cast<std::uint32_t>(group.rank()));
    LODE_TRY(const RunPlan plan, plan_run(story_source(), settings, test_machine()));
    memory::Ledger ledger(group.rank() == 1 ? plan.peak_bytes() - 1 : plan.peak_bytes());
    auto engine = Engine::start(source_of(story_folder()), plan, ledger, nullptr, &group);
    if (!engine) all[group.rank()] = engine.error();
    held[group.rank()] = engine ? 1 : ledger.held_bytes();
    return {};
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_FALSE(all[rank]) << rank;
    EXPECT_EQ(all[rank].error().code, Code::kOverBudget);
    EXPECT_THAT(to_string(all[rank].error()), HasSubstr("rank 1"));
    EXPECT_EQ(held[rank], 0U);
  }
}

/// A text of so many tokens over two ranks; a rank that `stops` cancels at its first piece.
struct RankText {
  std::array<Generation, 2> ranks;
  Status status;
};
RankText generate_over_ranks(std::array<bool, 2> stops) {
  RankText text;
  text.status = comm::run_ranks(2, {}, [&](comm::Group& group) -> Status {
    const std::size_t rank = group.rank();
    const RunPlan plan = plan_of(story_source(), over_ranks(2, static_cast<std::uint32_t>(rank)));
    memory::Ledger ledger(plan.peak_bytes());
    LODE_TRY(const auto engine,
             Engine::start(source_of(story_folder()), plan, ledger, nullptr, &group));
    Request request;
    request.prompt_ids = {1, 2, 3};
    request.max_new_tokens = 12;
    request.sampling.temperature = 0;
    LODE_TRY(text.ranks[rank],
             engine->generate(request, [&](std::string_view) { return !stops[rank]; }));
    return {};
  });
  return text;
}

TEST(EngineOverRanks, EndsAllTextsWhereOneRankIsToldToStop) {
  const RankText whole = generate_over_ranks({false, false});
  ASSERT_TRUE(whole.status) << to_string(whole.status.error());
  EXPECT_EQ(whole.ranks[0].finish, Finish::kLength);
  EXPECT_EQ(whole.ranks[1].ids, whole.ranks[0].ids);
  for (const std::array<bool, 2> stops : {std::array{true, false}, std::array{false, true}}) {
    const RankText stopped = generate_over_ranks(stops);
    ASSERT_TRUE(stopped.status) << to_string(stopped.status.error());
    for (const Generation& one : stopped.ranks) {
      EXPECT_EQ(one.finish, Finish::kCancelled);
      EXPECT_LT(one.ids.size(), whole.ranks[0].ids.size());
      EXPECT_EQ(one.ids, stopped.ranks[0].ids);
    }
  }
}

}  // namespace
}  // namespace lode::engine
