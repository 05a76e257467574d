#include "lode/engine/plan_after.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/base/fmt.h"
#include "lode/engine/stage_json.h"
#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

using ::testing::HasSubstr;

struct StoryRun {
  Source source = source_of(story_folder());
  RunPlan plan;
  Receipt receipt;

  explicit StoryRun(const Settings& settings) : plan(plan_of(source, settings)) {
    const TestEngine engine = start_engine(story_folder(), settings);
    receipt = make_receipt(engine.plan, engine->source(), *engine.ledger);
    receipt.kernel.num_samples = 1;
    receipt.kernel.peak_total_bytes = 30 << 20;
  }
};

Settings small() {
  Settings settings;
  settings.context_tokens = 32;
  settings.threads = 1;
  return settings;
}

Result<PlanAfter> compare(const StoryRun& run, const Receipt& receipt) {
  return compare_with_run(run.plan, run.source, as_json(receipt));
}

TEST(PlanAfter, IsZeroBytesApartFromTheRunThatFollowedIt) {
  StoryRun run(small());
  // As a run opens it, with its tokenizer.
  ASSERT_TRUE(open_tokenizer(run.source));
  const TestEngine engine = [] {
    TestEngine test;
    Source source = source_of(story_folder());
    LODE_CHECK(open_tokenizer(source), "the story model has a tokenizer");
    test.plan = plan_of(source, small());
    test.ledger = std::make_unique<memory::Ledger>(test.plan.budget.limit_bytes);
    auto made = Engine::start(std::move(source), test.plan, *test.ledger);
    LODE_CHECK(made, "a test engine that does not start");
    test.engine = *std::move(made);
    return test;
  }();
  run.plan = plan_of(run.source, small());
  const auto after = compare(run, make_receipt(engine.plan, engine->source(), *engine.ledger));
  ASSERT_TRUE(after) << to_string(after.error());
  EXPECT_TRUE(after->differences.empty());
  EXPECT_TRUE(after->settings.empty());
}

TEST(PlanAfter, NamesStageTagAndBytesOfWhatDiffers) {
  const StoryRun run(small());
  Receipt receipt = run.receipt;
  receipt.actual[3].peak_bytes[static_cast<std::size_t>(memory::Tag::kScratch)] += 5;
  const auto after = compare(run, receipt);
  ASSERT_TRUE(after);
  ASSERT_EQ(after->differences.size(), 1U);
  const PlanDifference& one = after->differences[0];
  EXPECT_EQ(one.stage, run.plan.stages[3].name);
  EXPECT_EQ(one.what, "peak of scratch");
  EXPECT_EQ(one.actual_bytes - one.planned_bytes, 5U);
  EXPECT_EQ(after->planned_load_peak_bytes, run.plan.load_peak_bytes());
  EXPECT_EQ(after->kernel_load_peak_bytes, 30U << 20);
}

TEST(PlanAfter, NamesStagesThatOneSideLacks) {
  const StoryRun run(small());
  Receipt receipt = run.receipt;
  receipt.actual.back().name = "other";
  const auto after = compare(run, receipt);
  ASSERT_TRUE(after);
  ASSERT_EQ(after->differences.size(), 2U);
  EXPECT_EQ(after->differences[0].stage, "work");
  EXPECT_THAT(after->differences[0].what, HasSubstr("the run did not have"));
  EXPECT_EQ(after->differences[1].stage, "other");
}

TEST(PlanAfter, NamesTheSettingsThatDiffer) {
  const StoryRun run(small());
  Settings other = small();
  other.context_tokens = 64;
  const auto after = compare_with_run(plan_of(run.source, other), run.source, as_json(run.receipt));
  ASSERT_TRUE(after);
  ASSERT_EQ(after->settings.size(), 2U);  // a chunk is never larger than the context
  EXPECT_EQ(after->settings[0].setting, "context_tokens");
  EXPECT_EQ(after->settings[0].planned, "64");
  EXPECT_EQ(after->settings[0].actual, "32");
  EXPECT_FALSE(after->differences.empty());
}

TEST(PlanAfter, NamesTheWayOfReadingWhereItDiffers) {
  const StoryRun run(small());
  Settings other = small();
  other.load.io = io::IoKind::kBuffered;
  other.load.workers = 5;
  const auto after = compare_with_run(plan_of(run.source, other), run.source, as_json(run.receipt));
  ASSERT_TRUE(after);
  ASSERT_EQ(after->settings.size(), 2U);
  EXPECT_EQ(after->settings[0].setting, "load_threads");
  EXPECT_EQ(after->settings[1].setting, "io");
  EXPECT_EQ(after->settings[1].planned, "buffered");
  EXPECT_EQ(after->settings[1].actual, "auto");
}

TEST(PlanAfter, HasNoFiguresOfTheKernelThatWereNotMeasured) {
  const StoryRun run(small());
  Receipt receipt = run.receipt;
  receipt.kernel.num_samples = 0;
  const auto after = compare(run, receipt);
  ASSERT_TRUE(after) << to_string(after.error());
  EXPECT_FALSE(after->kernel_load_peak_bytes);
  EXPECT_FALSE(after->kernel_over_finished_bytes);
  EXPECT_FALSE(after->source_cache_bytes);
}

TEST(PlanAfter, RefusesWhatIsNoReceipt) {
  const StoryRun run(small());
  const std::string run_of_one = R"({"run": {"context_tokens": 1}, )";
  const std::string stage =
      R"("actual":[{"name":"scan","held_bytes":{},"peak_bytes":{},"peak_total_bytes":1}]})";
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "no settings of a run"},
      {"{}", "no settings of a run"},
      // As of lode prepare.
      {R"({"run": {"model": "x", "context_tokens": 0}, "actual": []})", "no settings of a run"},
      {R"({"run": {"model": "x"}, "actual": [], "kernel": {}})", "no settings of a run"},
      {run_of_one + R"("x": 1})", "no stages"},
      {run_of_one + R"("actual": 3})", "stages"},
      {run_of_one + R"("actual": [3]})", "stage 0: name"},
      {run_of_one + R"("actual": [{"name": 3}]})", "stage 0: name"},
      {run_of_one + R"("actual": [{"name": "scan"}]})", "stage 0: held_bytes"},
      {run_of_one + stage, "stage 0: weights"},
      {run_of_one + R"("actual": []})", "kernel"},
      {run_of_one + R"("actual": [], "kernel": {"peak_total_bytes": -1}})",
       "kernel.peak_total_bytes"},
  };
  for (const auto& [text, found] : cases) {
    const auto value = json::parse(text);
    ASSERT_TRUE(value) << text;
    const auto after = compare_with_run(run.plan, run.source, *value);
    ASSERT_FALSE(after) << text;
    EXPECT_EQ(after.error().code, Code::kInvalidSource) << text;
    EXPECT_EQ(after.error().thing, "not a run's receipt") << text;
    EXPECT_THAT(after.error().found, HasSubstr(found)) << text;
  }
}

TEST(StageJson, GoesThereAndBack) {
  const RunPlan plan = plan_of(source_of(story_folder()), {});
  const auto back = stages_of(as_json(plan.stages));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, plan.stages);
}

}  // namespace
}  // namespace lode::engine
