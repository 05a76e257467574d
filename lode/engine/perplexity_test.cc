#include "lode/engine/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lode/engine/test_engine.h"
#include "tests/support/sanitizers.h"

namespace lode::engine {
namespace {

TestEngine tiny_engine(std::uint32_t logits_rows) {
  Settings settings;
  settings.context_tokens = 16;
  settings.threads = 1;
  settings.mode = ops::Mode::kExact;
  settings.logits_rows = logits_rows;
  return start_engine(golden_folder("models/qwen3_moe"), settings);
}

std::vector<std::int32_t> some_ids(const TestEngine& engine, std::size_t count) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>((i * 37 + i * i) % engine->source().spec.vocab);
  }
  return ids;
}

// -log of the probability of `ids[at]` after `ids[first .. at)`, straight from the definition: the
// model is asked anew for every token.
double direct_nll(const TestEngine& engine, std::span<const std::int32_t> ids, std::size_t first,
                  std::size_t at) {
  const std::size_t vocab = engine->source().spec.vocab;
  std::vector<float> row(vocab);
  engine->cache().clear();
  const Status done = engine->model().forward(ids.subspan(first, at - first), engine->cache(),
                                              model::Logits::kLast, row);
  EXPECT_TRUE(done);
  long double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<long double>(logit));
  return static_cast<double>(std::log(sum) -
                             static_cast<long double>(row[static_cast<std::size_t>(ids[at])]));
}

Result<Perplexity> measured(const TestEngine& engine, std::span<const std::int32_t> ids,
                            const PerplexityShape& shape) {
  return measure_perplexity(engine->model(), engine->cache(), ids, shape, engine->logits(),
                            nullptr);
}

TEST(Perplexity, IsTheMeanOverWindowsSideBySide) {
  const TestEngine engine = tiny_engine(3);
  const std::vector<std::int32_t> ids = some_ids(engine, 23);  // two windows of 8 + 1, and a rest
  double sum = 0;
  for (const std::size_t first : {0U, 8U}) {
    for (std::size_t at = first + 1; at <= first + 8; ++at) {
      sum += direct_nll(engine, ids, first, at);
    }
  }
  const auto result = measured(engine, ids, {8, 8});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->scored_tokens, 16U);
  // Logits have the same bits however a window is cut; a softmax in double and one in long double
  // differ by a few ulp of numbers below 64.
  EXPECT_NEAR(result->mean_nll, sum / 16, 1e-12);
  EXPECT_NEAR(result->perplexity, std::exp(sum / 16), 1e-9);
}

TEST(Perplexity, AStrideScoresEachTokenOnceWithAsMuchContextAsTheWindowHas) {
  const TestEngine engine = tiny_engine(16);
  const std::vector<std::int32_t> ids = some_ids(engine, 20);  // windows from 0, 3, 6 and 9
  double sum = 0;
  for (std::size_t at = 1; at <= 8; ++at) sum += direct_nll(engine, ids, 0, at);
  for (const std::size_t first : {3U, 6U, 9U}) {
    for (std::size_t at = first + 6; at <= first + 8; ++at) {
      sum += direct_nll(engine, ids, first, at);
    }
  }
  const auto result = measured(engine, ids, {8, 3});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->scored_tokens, 17U);
  EXPECT_NEAR(result->mean_nll, sum / 17, 1e-12);
}

TEST(Perplexity, OnlyWholeWindowsCount) {
  const TestEngine engine = tiny_engine(16);
  EXPECT_EQ(measured(engine, some_ids(engine, 17), {8, 8})->scored_tokens, 16U);
  EXPECT_EQ(measured(engine, some_ids(engine, 16), {8, 8})->scored_tokens, 8U);
  EXPECT_EQ(measured(engine, some_ids(engine, 9), {8, 8})->scored_tokens, 8U);
}

TEST(Perplexity, RefusesShapesThatCutNothing) {
  const TestEngine engine = tiny_engine(16);
  const std::vector<std::int32_t> ids = some_ids(engine, 20);
  for (const PerplexityShape& shape : {PerplexityShape{0, 1}, PerplexityShape{17, 1},
                                       PerplexityShape{8, 0}, PerplexityShape{8, 9}}) {
    const auto result = measured(engine, ids, shape);
    ASSERT_FALSE(result) << shape.window_tokens << " " << shape.stride_tokens;
    EXPECT_EQ(result.error().code, Code::kUsage);
  }
  const auto result = measured(engine, some_ids(engine, 8), {8, 8});
  ASSERT_FALSE(result) << "a window and no token after it";
  EXPECT_EQ(result.error().code, Code::kUsage);
}

TEST(Perplexity, RefusesATokenBeyondTheVocabularyEvenWhereItIsOnlyScored) {
  const TestEngine engine = tiny_engine(16);
  std::vector<std::int32_t> ids = some_ids(engine, 9);
  ids.back() = static_cast<std::int32_t>(engine->source().spec.vocab);
  const auto result = measured(engine, ids, {8, 8});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kUsage);
}

TEST(Perplexity, StopsWhereTheListenerSaysNo) {
  const TestEngine engine = tiny_engine(16);
  const auto result = measure_perplexity(
      engine->model(), engine->cache(), some_ids(engine, 30), {8, 8}, engine->logits(),
      [](std::uint64_t done, std::uint64_t) { return done < 2; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kInterrupted);
}

TEST(Perplexity, OfTheStoryModelOnTheHeldOutBookIsWithinAPercentOfTheReference) {
  if (testing_support::kSanitized) GTEST_SKIP() << "44288 tokens take minutes under a sanitizer";
  const json::Value reference = story_reference();
  Settings settings;
  settings.logits_rows = 64;
  const TestEngine engine = start_engine(story_folder(), settings);
  const text::Tokenizer& tokenizer = **engine->tokenizer();
  const std::string book = file_text(golden_folder("story/through-the-looking-glass.txt"));
  std::vector<std::int32_t> ids = tokenizer.encode(book, {});
  ids.insert(ids.begin(), *tokenizer.token_to_id("<|endoftext|>"));
  const auto result = measured(engine, ids, {256, 256});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->scored_tokens,
            static_cast<std::uint64_t>(*reference.find("scored_tokens")->as_int()));
  const double want = reference.find("perplexity")->number();
  EXPECT_NEAR(result->perplexity, want, want / 100);
}

}  // namespace
}  // namespace lode::engine
