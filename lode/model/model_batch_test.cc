#include <gtest/gtest.h>

#include "lode/model/test_folder.h"

namespace lode::model {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(LODE_GOLDEN_DIR) / "quantised";

/// A gpt-oss model with windows, sinks and MXFP4 experts.
class Batch : public testing::TestWithParam<ops::Mode> {
 protected:
  Batch() {
    auto loaded = LoadedFolder::open(kFolder / "gptoss_mxfp4");
    LODE_CHECK(loaded, "a golden folder that does not load");
    loaded_ = *std::move(loaded);
    options_.mode = GetParam();
    options_.kv_format =
        GetParam() == ops::Mode::kExact ? ops::KvFormat::kF32 : ops::KvFormat::kF16;
  }
  std::unique_ptr<LoadedFolder> loaded_;
  ModelOptions options_;
  const std::vector<std::vector<std::int32_t>> sequences_ = {
      {5, 9, 200, 31, 7, 7, 1, 0, 255, 18, 90, 12, 44, 3}, {17}, {100, 101, 102, 103, 104, 105}};

  std::vector<float> alone(std::size_t sequence) {
    return TestModel(*loaded_, options_).logits(sequences_[sequence], 100);
  }
};

TEST_P(Batch, OfSequencesGivesEachTheBitsItHasAlone) {
  std::vector<float> want;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const std::vector<float> logits = alone(i);
    want.insert(want.end(), logits.begin(), logits.end());
  }
  for (const std::uint32_t chunk : {1U, 4U, 15U, 100U}) {
    options_.chunk_tokens = chunk;
    TestModel model(*loaded_, options_, 2);
    std::vector<KvCache> caches;
    std::vector<SequenceInput> batch;
    for (std::size_t i = 0; i < sequences_.size(); ++i) caches.push_back(model.cache(20));
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      batch.push_back({sequences_[i], &caches[i], Logits::kAll});
    }
    std::vector<float> got(logits_rows(batch) * loaded_->spec.vocab);
    ASSERT_TRUE(model->forward(batch, got));
    EXPECT_EQ(got, want) << chunk;
    EXPECT_EQ(caches[0].tokens(), sequences_[0].size());
  }
}

// Continuous batching: one sequence decodes while another one's prompt comes in.
TEST_P(Batch, MixesPromptsAndSingleTokens) {
  const std::size_t vocab = loaded_->spec.vocab;
  const std::vector<float> first = alone(0), last = alone(2);
  TestModel model(*loaded_, options_, 2);
  KvCache a = model.cache(20), b = model.cache(20);
  const std::span<const std::int32_t> tokens = sequences_[0];
  ASSERT_TRUE(model->forward(tokens.first(13), a, Logits::kNone, {}));
  const std::vector<SequenceInput> batch = {{tokens.subspan(13), &a, Logits::kLast},
                                            {sequences_[2], &b, Logits::kLast}};
  std::vector<float> got(2 * vocab);
  ASSERT_TRUE(model->forward(batch, got));
  EXPECT_TRUE(
      std::equal(first.end() - static_cast<std::ptrdiff_t>(vocab), first.end(), got.begin()));
  EXPECT_TRUE(std::equal(last.end() - static_cast<std::ptrdiff_t>(vocab), last.end(),
                         got.begin() + static_cast<std::ptrdiff_t>(vocab)));
}

INSTANTIATE_TEST_SUITE_P(Modes, Batch, testing::Values(ops::Mode::kExact, ops::Mode::kFast),
                         [](const auto& tested) {
                           return tested.param == ops::Mode::kExact ? "exact" : "fast";
                         });

class Forward : public Batch {};
INSTANTIATE_TEST_SUITE_P(Modes, Forward, testing::Values(ops::Mode::kFast),
                         [](const auto&) { return "fast"; });

TEST_P(Forward, RefusesTokensBeyondTheVocabularyAndLeavesTheCacheAlone) {
  TestModel model(*loaded_, options_);
  KvCache cache = model.cache(20);
  std::vector<float> logits(loaded_->spec.vocab);
  for (const std::int32_t bad : {256, -1, INT32_MAX, INT32_MIN}) {
    const auto done =
        model->forward(std::vector<std::int32_t>{1, bad}, cache, Logits::kLast, logits);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::kUsage);
    EXPECT_EQ(done.error().found, std::to_string(bad));
    EXPECT_EQ(cache.tokens(), 0U);
  }
}

TEST_P(Forward, RefusesMoreTokensThanTheCacheHolds) {
  TestModel model(*loaded_, options_);
  KvCache cache = model.cache(5);
  std::vector<float> logits(loaded_->spec.vocab);
  ASSERT_TRUE(model->forward(std::vector<std::int32_t>{1, 2, 3}, cache, Logits::kLast, logits));
  const auto done =
      model->forward(std::vector<std::int32_t>{1, 2, 3}, cache, Logits::kLast, logits);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kUsage);
  EXPECT_EQ(cache.tokens(), 3U);
  EXPECT_TRUE(model->forward(std::vector<std::int32_t>{1, 2}, cache, Logits::kLast, logits));
}

TEST_P(Forward, TakesAnEmptyBatch) {
  TestModel model(*loaded_, options_);
  KvCache cache = model.cache(5);
  EXPECT_TRUE(model->forward({}, {}));
  EXPECT_TRUE(model->forward(std::span<const std::int32_t>(), cache, Logits::kLast, {}));
}

TEST_P(Forward, HasThePromisedScratchAndNothingElse) {
  memory::Ledger ledger(std::uint64_t{1} << 40);
  parallel::ThreadPool pool(2);
  for (const std::uint32_t chunk : {1U, 512U}) {
    options_.chunk_tokens = chunk;
    const std::uint64_t promised =
        scratch_bytes(loaded_->spec, scratch_shape(options_, pool.num_threads()));
    const auto model =
        Model::make(ledger, loaded_->spec, loaded_->weights, **kernels::active(), pool, options_);
    ASSERT_TRUE(model);
    EXPECT_EQ(ledger.held_bytes(memory::Tag::kScratch), promised);
    EXPECT_EQ(ledger.held_bytes(memory::Tag::kPageTables), memory::page_table_bytes(promised));
    EXPECT_EQ(ledger.held_bytes(), promised + memory::page_table_bytes(promised));
  }
  for (std::uint64_t refused = 0; refused < 2; ++refused) {
    memory::FailingLedger failing(std::uint64_t{1} << 40, refused);
    EXPECT_FALSE(
        Model::make(failing, loaded_->spec, loaded_->weights, **kernels::active(), pool, options_));
    EXPECT_EQ(failing.held_bytes(), 0U);
  }
}

}  // namespace
}  // namespace lode::model
