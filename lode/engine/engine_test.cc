#include "lode/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lode/engine/receipt.h"
#include "lode/engine/test_engine.h"
#include "tests/support/checkpoint_files.h"

namespace lode::engine {
namespace {

using ::testing::HasSubstr;

// What this process has asked the system to read, from any file.
std::uint64_t bytes_read() {
  const std::string text = file_text("/proc/self/io");
  return std::stoull(text.substr(text.find("rchar:") + 6));
}

TEST(Engine, HoldsWhatThePlanSaidStageByStage) {
  for (const ops::Mode mode : {ops::Mode::kFast, ops::Mode::kExact}) {
    Settings settings = small_settings();
    settings.mode = mode;
    const TestEngine test = start_engine(story_folder(), settings);
    EXPECT_EQ(test.ledger->stages(), test.plan.stages);
    EXPECT_EQ(test.ledger->peak_bytes(), test.plan.peak_bytes());
    EXPECT_TRUE(make_receipt(test.plan, test->source(), *test.ledger).as_planned());
  }
}

TEST(Engine, GivesEveryByteBack) {
  TestEngine test = start_engine(story_folder(), small_settings());
  EXPECT_GT(test.ledger->held_bytes(), test->weights().weight_bytes());
  test.engine.reset();
  EXPECT_EQ(test.ledger->held_bytes(), 0U);
}

TEST(Engine, ReservesNothingMoreWhileItRuns) {
  const TestEngine test = start_engine(story_folder(), small_settings());
  const std::uint64_t held = test.ledger->held_bytes();
  Request request{.prompt_ids = {1, 2, 3}, .max_new_tokens = 4};
  request.sampling.seed = 1;
  ASSERT_TRUE(test->generate(request, nullptr));
  EXPECT_EQ(test.ledger->held_bytes(), held);
  EXPECT_EQ(test.ledger->peak_bytes(), test.plan.peak_bytes());
}

TEST(Engine, EveryRefusedReservationIsAClearErrorThatLeavesNothingHeld) {
  std::uint64_t refused_idx = 0;
  for (;; ++refused_idx) {
    Source source = source_of(story_folder());
    const RunPlan plan = plan_of(source, small_settings());
    memory::FailingLedger ledger(plan.budget.limit_bytes, refused_idx);
    const auto engine = Engine::start(std::move(source), plan, ledger);
    if (!ledger.refused()) {
      EXPECT_TRUE(engine);
      break;
    }
    ASSERT_FALSE(engine) << "reservation " << refused_idx;
    EXPECT_EQ(engine.error().code, Code::kOverBudget) << "reservation " << refused_idx;
    EXPECT_NE(engine.error().thing, "") << "reservation " << refused_idx;
    EXPECT_EQ(ledger.held_bytes(), 0U) << "reservation " << refused_idx;
  }
  // Metadata, ring, six stages' slabs, scratch, cache, logits, sampler, and page tables beside.
  EXPECT_GT(refused_idx, 12U);
}

TEST(Engine, RefusesOneByteUnderThePeakWithoutReadingAnything) {
  Source source = source_of(story_folder());
  const std::uint64_t peak = plan_of(source, small_settings()).peak_bytes();
  Settings settings = small_settings();
  settings.memory_bytes = peak - 1;
  const RunPlan plan = plan_of(source, settings);
  memory::Ledger ledger(plan.budget.limit_bytes);
  const std::uint64_t before = bytes_read();
  const auto begin = std::chrono::steady_clock::now();
  const auto engine = Engine::start(std::move(source), plan, ledger);
  const auto passed = std::chrono::steady_clock::now() - begin;
  const std::uint64_t after = bytes_read();
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kOverBudget);
  EXPECT_LT(passed, std::chrono::seconds(1));
  EXPECT_LT(after - before, 4096U) << "the counter's own file at most";
  EXPECT_EQ(ledger.held_bytes(), 0U);
  EXPECT_THAT(ledger.stages(), ::testing::IsEmpty());
}

TEST(Engine, StartsInExactlyThePeak) {
  const std::uint64_t peak = plan_of(source_of(story_folder()), small_settings()).peak_bytes();
  Settings settings = small_settings();
  settings.memory_bytes = peak;
  const TestEngine test = start_engine(story_folder(), settings);
  EXPECT_EQ(test.ledger->limit_bytes(), peak);
  EXPECT_EQ(test.ledger->peak_bytes(), peak);
}

TEST(Engine, StopsWhereTheProgressIsTold) {
  Source source = source_of(story_folder());
  const RunPlan plan = plan_of(source, small_settings());
  memory::Ledger ledger(plan.budget.limit_bytes);
  loader::Progress progress;
  progress.cancel = true;
  const auto engine = Engine::start(std::move(source), plan, ledger, &progress);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kInterrupted);
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST(Engine, RunsWithoutATokenizerButTellsWhoAsksForText) {
  const TestEngine test = start_engine(golden_folder("models/qwen3_moe"), small_settings());
  EXPECT_EQ(test.ledger->stages(), test.plan.stages);
  const auto text = test->generate(Request{.prompt_ids = {1}}, nullptr);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kInvalidSource);
  EXPECT_THAT(text.error().thing, HasSubstr("tokenizer.json"));
}

TEST(Engine, ADamagedTokenizerIsFoundBeforeTheWeightsAreRead) {
  Source source = source_of(story_folder());
  const testing_support::TempFolder folder;
  folder.write("tokenizer.json", "{\"model\": 1}");
  source.folder = folder.path();
  const RunPlan plan = plan_of(source, small_settings());
  memory::Ledger ledger(plan.budget.limit_bytes);
  loader::Progress progress;
  const auto engine = Engine::start(std::move(source), plan, ledger, &progress);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().where, HasSubstr("tokenizer.json"));
  EXPECT_EQ(progress.finished_bytes.load(), 0U);
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

}  // namespace
}  // namespace lode::engine
