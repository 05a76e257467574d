#include "lode/engine/target_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/engine/prepare_run.h"
#include "lode/engine/target_fit.h"
#include "lode/engine/test_engine.h"
#include "tests/support/checkpoint_files.h"

namespace lode::engine {
namespace {

using targets::Target;

const Source& story_source() {
  static const Source source = source_of(story_folder());
  return source;
}

struct Made {
  loader::LoadPlan load;
  loader::EnginePlan engine;
  TargetPlan plan;
};

Made made_for(const Source& source, const loader::EngineChoice& choice) {
  auto load = loader::plan_load(source.binding, source.spec, source.index, {});
  auto engine = loader::plan_engine(source.binding, choice, 2);
  LODE_CHECK(load && engine, "a test preparation that cannot be planned");
  TargetPlan plan = target_plan(*engine, choice, *load);
  return {*std::move(load), *std::move(engine), std::move(plan)};
}

TEST(TargetPlan, HasEveryByteOfTheBanksOnceAndPaddingOnItsOwn) {
  for (const Target target : {Target::kMarlin, Target::kFlashinferTrtllm}) {
    const Made made = made_for(story_source(), {.target = target, .options = {}, .experts = {}});
    EXPECT_EQ(made.plan.expert_bytes + made.plan.alignment_bytes, made.engine.bytes());
    EXPECT_EQ(made.plan.expert_padding_bytes + made.plan.alignment_bytes,
              made.engine.padding_bytes());
    std::uint64_t stages = 0;
    for (const TargetStage& stage : made.plan.stages) stages += stage.final_bytes;
    EXPECT_EQ(stages, made.plan.expert_bytes + made.plan.dense_bytes);
  }
}

// Against the receipt of a preparation that has run.
TEST(TargetPlan, HoldsInEachStageWhatThePreparationsLedgerRecordsThere) {
  const testing_support::TempFolder out;
  const loader::EngineChoice choice{.target = Target::kMarlin, .options = {}, .experts = {}};
  auto run =
      plan_prepare(story_source(), {}, test_machine(), {.out = out.path() / "m", .choice = choice});
  ASSERT_TRUE(run) << to_string(run.error());
  memory::Ledger ledger(run->budget.limit_bytes);
  ASSERT_TRUE(run_prepare(*run, ledger));
  const TargetPlan plan = target_plan(*run->engine, choice, *run->load);
  const std::vector<memory::StageUse> stages = ledger.stages();
  ASSERT_EQ(stages.size(), plan.stages.size() + 1);  // after "scan"
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const memory::StageUse& held = stages[i + 1];
    EXPECT_EQ(plan.stages[i].name, held.name);
    EXPECT_EQ(plan.stages[i].transient_bytes,
              held.peak_total_bytes - of(held.peak_bytes, memory::Tag::kMetadata));
  }
}

TEST(TargetPlan, HasTheEnginesWaysBesideTheExpertsOfEachLayer) {
  const Made made =
      made_for(story_source(), {.target = Target::kMarlin, .options = {}, .experts = {}});
  std::size_t layers = 0;
  for (const TargetStage& stage : made.plan.stages) {
    const bool experts = stage.name.starts_with("experts of layer ");
    layers += experts ? 1 : 0;
    EXPECT_EQ(stage.engines.empty(), !experts);
  }
  EXPECT_EQ(layers, story_source().spec.num_layers);
}

TEST(TargetPlan, APartOfTheExpertsTakesThatPartOfTheBytes) {
  const loader::EngineChoice all{.target = Target::kMarlin, .options = {}, .experts = {}};
  loader::EngineChoice some = all;
  some.experts = {0, 1};
  const std::uint64_t experts = story_source().spec.router.num_experts;
  const TargetPlan whole = made_for(story_source(), all).plan;
  const TargetPlan part = made_for(story_source(), some).plan;
  EXPECT_EQ(part.expert_bytes * experts, whole.expert_bytes * 2);
  EXPECT_EQ(part.dense_bytes, whole.dense_bytes);
}

TEST(TargetPlan, SaysHowManyTimesOursAWayTakes) {
  const EngineWay way{.extra_bytes = 30};
  EXPECT_EQ(times_ours(way, {.transient_bytes = 20}), 1.5);
  EXPECT_EQ(times_ours(way, {}), 0.0);
}

TEST(TargetFit, IsWhatAPlanForEachTargetSays) {
  for (const std::string folder : {"", "models/gpt_oss", "models/qwen3_moe"}) {
    const Source source =
        folder.empty() ? source_of(story_folder()) : source_of(golden_folder(folder));
    const std::vector<TargetFit> fits = target_fits(source.binding);
    ASSERT_EQ(fits.size(), targets::target_table().size());
    EXPECT_TRUE(fits.front().possible());  // the cpu
    for (const TargetFit& fit : fits) {
      if (fit.target == Target::kCpu) continue;
      const loader::EngineChoice choice{.target = fit.target, .options = {}, .experts = {}};
      const auto plan = loader::plan_engine(source.binding, choice, 2);
      EXPECT_EQ(fit.possible(), plan.has_value()) << targets::name(fit.target);
      EXPECT_EQ(fit.reason, plan ? "" : to_string(plan.error()));
    }
  }
}

TEST(TargetFit, NamesWhatATargetTakesWhereTheExpertsAreSomethingElse) {
  const std::vector<TargetFit> fits = target_fits(story_source().binding);
  EXPECT_TRUE(fits[static_cast<std::size_t>(Target::kMarlin)].possible());
  const TargetFit& deepgemm = fits[static_cast<std::size_t>(Target::kDeepgemm)];
  EXPECT_THAT(deepgemm.reason, ::testing::HasSubstr("fp8-block, mxfp4 for target deepgemm"));
}

TEST(TargetFit, AModelWithoutExpertsGoesToTheCpuAlone) {
  for (const TargetFit& fit : target_fits({})) {
    EXPECT_EQ(fit.possible(), fit.target == Target::kCpu);
  }
}

}  // namespace
}  // namespace lode::engine
