#include "lode/engine/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/base/fmt.h"
#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Its limit is 40960 tokens: there keys and values decide the peak.
const Source& golden_source() {
  static const Source source = source_of(golden_folder("models/qwen3_moe"));
  return source;
}
const Source& story_source() {
  static const Source source = source_of(story_folder());
  return source;
}

Settings with_memory(std::uint64_t bytes, std::uint32_t context = 0) {
  Settings settings;
  settings.memory_bytes = bytes;
  settings.context_tokens = context;
  settings.threads = 1;
  // A small ring, so that it is the keys and values that decide what a long context takes.
  settings.load.workers = 1;
  settings.load.readers = 1;
  settings.load.num_slots = 2;
  settings.load.slot_bytes = 256 << 10;
  return settings;
}

std::uint64_t peak_at(const Source& source, std::uint32_t context) {
  return plan_of(source, with_memory(std::uint64_t{1} << 40, context)).peak_bytes();
}

TEST(RunPlan, TakesTheModelsLimitAsContextWhereNoneIsNamed) {
  EXPECT_EQ(plan_of(story_source(), {}).context_tokens, 256U);  // max_position_embeddings
}

TEST(RunPlan, RefusesAContextBeyondTheModelsLimit) {
  const auto plan = plan_run(story_source(), with_memory(1 << 30, 257), test_machine());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kUsage);
  EXPECT_EQ(plan.error().thing, "--ctx");
  EXPECT_THAT(plan.error().wanted, HasSubstr("256"));
  EXPECT_EQ(plan.error().found, "257");
}

TEST(RunPlan, SaysWhereTheBudgetComesFrom) {
  EXPECT_EQ(plan_of(story_source(), with_memory(100 << 20)).budget.source, "--memory");
  EXPECT_EQ(plan_of(story_source(), {}).budget.source, "MemAvailable");
  memory::MachineMemory confined = test_machine();
  confined.cgroups = {{"/small", std::uint64_t{1} << 30, 0}};
  EXPECT_EQ(plan_run(story_source(), {}, confined)->budget.source, "cgroup /small");
}

TEST(RunPlan, HasAStageForTheScanEachStageOfTheLoadTheSealAndTheWork) {
  const RunPlan plan = plan_of(story_source(), {});
  std::vector<std::string> names;
  for (const memory::StageUse& stage : plan.stages) names.push_back(stage.name);
  EXPECT_THAT(names, ::testing::ElementsAre("scan", "model", "layer 0", "layer 1", "layer 2",
                                            "layer 3", "layer 4", "seal", "work"));
}

TEST(RunPlan, IsTheLargestPeakOfItsStages) {
  const RunPlan plan = plan_of(story_source(), {});
  std::uint64_t most = 0;
  for (const memory::StageUse& stage : plan.stages) {
    most = std::max(most, stage.peak_total_bytes);
  }
  EXPECT_EQ(plan.peak_bytes(), most);
}

TEST(RunPlan, KeysAndValuesGrowWithTheContextAndNothingElseDoes) {
  const RunPlan small = plan_of(story_source(), with_memory(1 << 30, 128));
  const RunPlan large = plan_of(story_source(), with_memory(1 << 30, 256));
  // 5 layers, keys and values, 4 heads of 32, f16, 128 more tokens.
  EXPECT_EQ(large.kv_bytes - small.kv_bytes, 5U * 2 * 4 * 32 * 2 * 128);
  EXPECT_EQ(large.metadata_bytes, small.metadata_bytes);
  EXPECT_EQ(large.load.weight_bytes(), small.load.weight_bytes());
}

TEST(RunPlan, MakesRoomForTheLogitsThatAreAskedFor) {
  Settings settings;
  const RunPlan one = plan_of(story_source(), settings);
  settings.logits_rows = 129;
  const RunPlan many = plan_of(story_source(), settings);
  // Vocabulary 4096: 16 KiB a row; from 2 MiB on whole huge pages.
  EXPECT_EQ(many.scratch_bytes - one.scratch_bytes, (4U << 20) - (16U << 10));
}

TEST(LargestContext, FitsAndOneTokenMoreDoesNot) {
  const Source& source = golden_source();
  const std::uint32_t limit = source.spec.max_positions;
  for (const std::uint32_t want : {limit / 4 * 3, limit - 1000}) {
    ASSERT_GT(peak_at(source, want), peak_at(source, 1)) << "the context decides the peak";
    // A budget between two contexts: just what `want` needs. Bytes come in pages, so a few tokens
    // more may fit too.
    const std::uint64_t budget = peak_at(source, want);
    const std::uint32_t context =
        largest_context(plan_of(source, with_memory(budget, limit)), source);
    EXPECT_GE(context, want);
    EXPECT_LE(peak_at(source, context), budget);
    EXPECT_TRUE(context == limit || peak_at(source, context + 1) > budget);
  }
}

TEST(LargestContext, IsTheModelsLimitWhereThereIsPlenty) {
  EXPECT_EQ(largest_context(plan_of(story_source(), {}), story_source()), 256U);
}

TEST(LargestContext, IsZeroWhereTheWeightsAloneDoNotFit) {
  EXPECT_EQ(largest_context(plan_of(story_source(), with_memory(1 << 20)), story_source()), 0U);
}

TEST(CheckFits, TakesThePeakItselfAndRefusesOneByteLess) {
  const std::uint64_t peak = peak_at(story_source(), 0);
  EXPECT_TRUE(check_fits(plan_of(story_source(), with_memory(peak)), story_source()));
  const Status refused = check_fits(plan_of(story_source(), with_memory(peak - 1)), story_source());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOverBudget);
}

TEST(CheckFits, NamesNeedHaveAndTheLargestConsumer) {
  const RunPlan plan = plan_of(story_source(), with_memory(20 << 20));
  const Status refused = check_fits(plan, story_source());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().wanted, StartsWith(fmt::format("{} bytes", plan.peak_bytes())));
  EXPECT_THAT(refused.error().wanted, HasSubstr("most for metadata"));  // 15 MiB
  EXPECT_THAT(refused.error().found, StartsWith("20971520 bytes (20.0 MiB) from --memory"));
}

// "--memory N fits" or "--ctx N fits" among what the hint names, to be tried out.
std::uint64_t hinted(const Status& refused, const std::string& setting) {
  const std::string& hint = refused.error().hint;
  EXPECT_THAT(hint, ::testing::ContainsRegex(setting + " [0-9]+ fits"));
  return std::stoull(hint.substr(hint.find(setting) + setting.size() + 1));
}

TEST(CheckFits, NamesTheMemoryThatFitsWhereNoContextDoes) {
  const Status refused = check_fits(plan_of(story_source(), with_memory(20 << 20)), story_source());
  ASSERT_FALSE(refused);
  const std::uint64_t bytes = hinted(refused, "--memory");
  EXPECT_TRUE(plan_of(story_source(), with_memory(bytes)).fits());
  EXPECT_FALSE(plan_of(story_source(), with_memory(bytes - 1)).fits());
}

TEST(CheckFits, NamesTheContextThatFitsWhereOneDoes) {
  const Source& source = golden_source();
  const std::uint32_t limit = source.spec.max_positions;
  const std::uint64_t budget = peak_at(source, limit) - 1;
  ASSERT_GT(peak_at(source, limit), peak_at(source, 1)) << "the context decides the peak";
  const Status refused = check_fits(plan_of(source, with_memory(budget, limit)), source);
  ASSERT_FALSE(refused);
  const auto context = static_cast<std::uint32_t>(hinted(refused, "--ctx"));
  EXPECT_LT(context, limit);
  EXPECT_TRUE(plan_of(source, with_memory(budget, context)).fits());
  EXPECT_FALSE(plan_of(source, with_memory(budget, context + 1)).fits());
}

TEST(CheckFits, PromisesNothingOnAMachineThatHasLessThanTheRunNeeds) {
  memory::MachineMemory small = test_machine();
  small.available_bytes = 10 << 20;
  const auto plan = plan_run(story_source(), with_memory(20 << 20), small);
  ASSERT_TRUE(plan);
  const Status refused = check_fits(*plan, story_source());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().hint, StartsWith("no setting"));
}

TEST(CheckFits, NamesEverySettingThatFitsTheOneThatSavesMostFirst) {
  const Source& source = golden_source();
  const std::uint32_t limit = source.spec.max_positions;
  const RunPlan plan = plan_of(source, with_memory(peak_at(source, limit) - 1, limit));
  const Status refused = check_fits(plan, source);
  ASSERT_FALSE(refused);
  std::size_t last = 0;
  std::size_t named = 0;
  const auto list = advice(plan, source);
  ASSERT_TRUE(list);
  for (const Advice& one : *list) {
    const std::size_t at = refused.error().hint.find(one.setting + " fits");
    EXPECT_EQ(at != std::string::npos, one.peak_bytes <= plan.budget.limit_bytes) << one.setting;
    if (at == std::string::npos) continue;
    EXPECT_GE(at, last);
    last = at;
    ++named;
  }
  EXPECT_GE(named, 2U) << refused.error().hint;
}

TEST(RunPlan, TakesTheLargestContextThatFitsWhereThatIsAskedFor) {
  const Source& source = golden_source();
  const std::uint32_t limit = source.spec.max_positions;
  Settings settings = with_memory(peak_at(source, limit) - 1);
  settings.context_auto = true;
  const RunPlan plan = plan_of(source, settings);
  EXPECT_TRUE(plan.fits());
  EXPECT_LT(plan.context_tokens, limit);
  EXPECT_GT(peak_at(source, plan.context_tokens + 1), plan.budget.limit_bytes);
  settings.memory_bytes = std::uint64_t{1} << 40;
  EXPECT_EQ(plan_of(source, settings).context_tokens, limit);
}

TEST(RunPlan, IsForASmallContextWhereNoneFits) {
  const Source& source = golden_source();
  Settings settings = with_memory(1 << 20);
  settings.context_auto = true;
  const RunPlan plan = plan_of(source, settings);
  EXPECT_TRUE(plan.no_context_fits);
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.context_tokens, std::min(source.spec.max_positions, 256U));
  EXPECT_THAT(check_fits(plan, source).error().thing, HasSubstr("no context fits"));
}

TEST(Advice, PutsChangesTogetherWhereNoneFitsAlone) {
  const Source& source = golden_source();
  Settings settings = with_memory(1 << 30, source.spec.max_positions);
  settings.threads = 4;
  settings.kv_format = ops::KvFormat::kF32;
  Settings least = settings;
  least.threads = 1;
  least.kv_format = ops::KvFormat::kF16;
  least.chunk_tokens = 64;
  least.load.dense = loader::DenseFormat::kInt8;
  least.context_tokens = 1000;
  settings.memory_bytes = plan_of(source, least).peak_bytes();
  const RunPlan plan = plan_of(source, settings);
  const auto list = advice(plan, source);
  ASSERT_TRUE(list);
  ASSERT_FALSE(list->empty());
  for (const Advice& one : *list) {
    const bool together = one.setting.find(" --") != std::string::npos;
    EXPECT_EQ(together, one.peak_bytes <= plan.budget.limit_bytes) << one.setting;
  }
  EXPECT_THAT(list->front().setting, StartsWith("--ctx "));
  EXPECT_THAT(list->front().setting, HasSubstr(" --kv-dtype f16"));
}

TEST(FirstOver, IsTheFirstStageThatDoesNotFit) {
  EXPECT_EQ(first_over(plan_of(story_source(), {})), nullptr);
  const RunPlan plan = plan_of(story_source(), with_memory(20 << 20));
  ASSERT_NE(first_over(plan), nullptr);
  const memory::StageUse* const over = first_over(plan);
  EXPECT_GT(over->peak_total_bytes, plan.budget.limit_bytes);
  ASSERT_NE(over, plan.stages.data()) << "the scan alone fits";
  for (const memory::StageUse* stage = plan.stages.data(); stage != over; ++stage) {
    EXPECT_LE(stage->peak_total_bytes, plan.budget.limit_bytes) << stage->name;
  }
}

TEST(Advice, SavesWhatItSays) {
  const Source& source = golden_source();
  Settings settings = with_memory(1 << 30, source.spec.max_positions);
  settings.kv_format = ops::KvFormat::kF32;
  const RunPlan plan = plan_of(source, settings);
  const auto list = advice(plan, source);
  ASSERT_TRUE(list);
  ASSERT_FALSE(list->empty());
  std::uint64_t last = ~std::uint64_t{0};
  for (const Advice& one : *list) {
    EXPECT_LE(one.saved_bytes, last) << "not sorted";
    last = one.saved_bytes;
    EXPECT_EQ(one.peak_bytes + one.saved_bytes, plan.peak_bytes());
    Settings other = settings;
    if (one.setting == "--kv-dtype f16") {
      other.kv_format = ops::KvFormat::kF16;
      EXPECT_EQ(plan_of(source, other).peak_bytes(), one.peak_bytes);
    }
  }
}

TEST(Advice, NamesTheContextThatFitsWhereTheRunDoesNot) {
  const Source& source = golden_source();
  const std::uint32_t limit = source.spec.max_positions;
  const RunPlan plan = plan_of(source, with_memory(peak_at(source, limit) - 1, limit));
  const auto list = advice(plan, source);
  ASSERT_TRUE(list);
  const std::string fits = fmt::format("--ctx {}", largest_context(plan, source));
  EXPECT_TRUE(std::any_of(list->begin(), list->end(), [&](const Advice& one) {
    return one.setting == fits && one.peak_bytes <= plan.budget.limit_bytes;
  }));
}

}  // namespace
}  // namespace lode::engine
