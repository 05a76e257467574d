#include "lode/engine/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

TestEngine engine_of(const std::filesystem::path& folder) {
  Settings settings;
  settings.context_tokens = 32;
  settings.threads = 2;
  return start_engine(folder, settings);
}

TEST(Speed, IsTokensOverTime) {
  const Speed speed{.tokens = 10, .times_us = {1'000'000, 500'000, 500'000}};
  EXPECT_DOUBLE_EQ(speed.tokens_per_second(), 15);
  EXPECT_DOUBLE_EQ(speed.best_tokens_per_second(), 20);
}

TEST(Speed, TakesAsManyTimesAsAsked) {
  const TestEngine engine = engine_of(story_folder());
  const auto prompt = measure_prompt(*engine.engine, {32, 3});
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->tokens, 32U);
  EXPECT_EQ(prompt->times_us.size(), 3U);
  EXPECT_EQ(engine->cache().tokens(), 32U);
  const auto decode = measure_decode(*engine.engine, {5, 2});
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->tokens, 5U);
  EXPECT_EQ(decode->times_us.size(), 2U);
  EXPECT_EQ(engine->cache().tokens(), 5U);
}

TEST(Speed, RefusesMoreTokensThanTheContextHasAndNone) {
  const TestEngine engine = engine_of(story_folder());
  for (const auto& [tokens, repeats] : {std::pair{33U, 1U}, {0U, 1U}, {8U, 0U}}) {
    const auto speed = measure_decode(*engine.engine, {tokens, repeats});
    ASSERT_FALSE(speed);
    EXPECT_EQ(speed.error().code, Code::kUsage);
  }
}

TEST(Speed, StopsWhenTold) {
  const TestEngine engine = engine_of(story_folder());
  const auto speed = measure_prompt(*engine.engine, {8, 3}, [] { return false; });
  ASSERT_FALSE(speed);
  EXPECT_EQ(speed.error().code, Code::kInterrupted);
}

TEST(DecodeReadBytes, CountsTopKExpertsAndATiedEmbeddingAsTheHead) {
  const Source source = source_of(story_folder());
  const RunPlan plan = plan_of(source, {});
  // Of 16 experts 2 are read.
  std::uint64_t banks = 0;
  std::uint64_t dense = 0;
  for (const loader::StagePlan& stage : plan.load.stages) {
    if (stage.bank) banks += stage.bank->bytes();
    for (const loader::TensorPlace& place : stage.places) dense += place.bytes;
  }
  EXPECT_EQ(decode_read_bytes(plan.load, source.spec), dense + banks / 8);
}

TEST(DecodeReadBytes, LeavesOutAnEmbeddingThatIsOnlyLookedUp) {
  const Source source = source_of(golden_folder("models/qwen3_moe"));
  const RunPlan plan = plan_of(source, {});
  ASSERT_TRUE(
      source.binding.model.matrices[static_cast<std::size_t>(families::Role::kOutputHead)].present);
  std::uint64_t all = 0;
  for (const loader::StagePlan& stage : plan.load.stages) {
    for (const loader::TensorPlace& place : stage.places) {
      if (place.role != families::Role::kTokenEmbedding) all += place.bytes;
    }
    if (stage.bank) all += stage.bank->record.record_bytes * source.spec.router.top_k;
  }
  EXPECT_EQ(decode_read_bytes(plan.load, source.spec), all);
}

TEST(ReadBandwidth, IsAPositiveNumberAndGivesTheBlockBack) {
  parallel::ThreadPool pool(2);
  memory::Ledger ledger(64 << 20);
  const auto bandwidth = measure_read_bandwidth(pool, ledger, 8 << 20);
  ASSERT_TRUE(bandwidth);
  EXPECT_GT(*bandwidth, 1e6);
  EXPECT_EQ(ledger.held_bytes(), 0U);
  EXPECT_GE(ledger.peak_bytes(), std::uint64_t{8} << 20);
}

TEST(ReadBandwidth, RefusesABlockBeyondTheBudgetOrTooSmallToTell) {
  parallel::ThreadPool pool(1);
  memory::Ledger ledger(4 << 20);
  EXPECT_EQ(measure_read_bandwidth(pool, ledger, 8 << 20).error().code, Code::kOverBudget);
  EXPECT_EQ(measure_read_bandwidth(pool, ledger, 1000).error().code, Code::kUsage);
}

}  // namespace
}  // namespace lode::engine
