#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lode/model/test_folder.h"

namespace lode::model {
namespace {

const std::filesystem::path kModels = std::filesystem::path(LODE_GOLDEN_DIR) / "models";
const std::filesystem::path kQuantised = std::filesystem::path(LODE_GOLDEN_DIR) / "quantised";

constexpr ModelOptions kExact{ops::Mode::kExact, ops::KvFormat::kF32, 512};
constexpr ModelOptions kFast{ops::Mode::kFast, ops::KvFormat::kF16, 512};

std::unique_ptr<LoadedFolder> open(const std::filesystem::path& folder) {
  auto loaded = LoadedFolder::open(folder);
  EXPECT_TRUE(loaded) << to_string(loaded.error());
  return loaded ? *std::move(loaded) : nullptr;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= largest)) largest = difference;  // a NaN sticks
  }
  return largest;
}

std::int32_t best_token(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// models/README.md: max(2e-4, 8 x what fp32 differs from fp64), for logits and hidden states.
class GoldenModel : public testing::TestWithParam<std::string> {
 protected:
  double bound(const std::string& name) const {
    const json::Value* figure = about_.find("max_abs_fp32_minus_fp64")->find(name);
    return std::max(2e-4, figure == nullptr ? 0.0 : 8.0 * figure->number());
  }
  const std::filesystem::path folder_ = kModels / GetParam();
  const json::Value about_ = read_json(folder_ / "golden.json");
  const GoldenTensors golden_{folder_ / "golden.safetensors"};
  const std::unique_ptr<LoadedFolder> loaded_ = open(folder_);
};

TEST_P(GoldenModel, GivesTheLogitsOfBothSequences) {
  ASSERT_NE(loaded_, nullptr);
  TestModel model(*loaded_, kExact);
  for (const std::string which : {"0", "1"}) {
    const std::vector<std::int32_t> tokens = golden_.ids("input_ids." + which);
    const std::vector<float> want = golden_.floats("logits." + which);
    EXPECT_LE(largest_difference(model.logits(tokens, tokens.size()), want), bound("logits"));
    EXPECT_LE(largest_difference(model.logits(tokens, 1), want), bound("logits"));
  }
  EXPECT_EQ(model->unsure_rows(), 0U);
}

TEST_P(GoldenModel, GivesTheHiddenStatesOfEveryLayer) {
  ASSERT_NE(loaded_, nullptr);
  TestModel model(*loaded_, kExact);
  Recorder seen;
  model.logits(golden_.ids("input_ids.0"), 1000, &seen);
  ASSERT_EQ(seen.states.size(), loaded_->spec.num_layers + 1);
  for (const auto& [index, state] : seen.states) {
    const std::string name = "hidden." + std::to_string(index);
    EXPECT_LE(largest_difference(state, golden_.floats(name)), bound(name)) << name;
  }
}

// models/README.md: ids equal, weights within 2e-5; there each row is by rising id.
TEST_P(GoldenModel, RoutesAsTheReferenceDoes) {
  ASSERT_NE(loaded_, nullptr);
  TestModel model(*loaded_, kExact);
  Recorder seen;
  model.logits(golden_.ids("input_ids.0"), 1000, &seen);
  const std::size_t top_k = loaded_->spec.router.top_k;
  for (const auto& [layer, ids] : seen.ids) {
    const auto want_ids = golden_.ids("router_topk_ids." + std::to_string(layer));
    const auto want_weights = golden_.floats("router_topk_weights." + std::to_string(layer));
    ASSERT_EQ(ids.size(), want_ids.size());
    for (std::size_t pair = 0; pair < ids.size(); ++pair) {
      const std::size_t first = pair / top_k * top_k;
      const auto row = ids.begin() + static_cast<std::ptrdiff_t>(first);
      const auto at = std::find(row, row + static_cast<std::ptrdiff_t>(top_k), want_ids[pair]);
      ASSERT_NE(at, row + static_cast<std::ptrdiff_t>(top_k)) << layer << " " << pair;
      const auto column = static_cast<std::size_t>(at - row);
      EXPECT_NEAR(seen.weights[layer][first + column], want_weights[pair], 2e-5);
    }
  }
}

TEST_P(GoldenModel, ContinuesGreedilyAsTheReferenceDoes) {
  ASSERT_NE(loaded_, nullptr);
  TestModel model(*loaded_, kExact);
  const std::vector<std::int32_t> prompt = golden_.ids("input_ids.0");
  const std::vector<std::int32_t> want = golden_.ids("greedy_ids");
  KvCache cache = model.cache(prompt.size() + want.size());
  std::vector<float> logits(loaded_->spec.vocab);
  ASSERT_TRUE(model->forward(prompt, cache, Logits::kLast, logits));
  std::vector<std::int32_t> got;
  while (got.size() < want.size()) {
    got.push_back(best_token(logits));
    ASSERT_TRUE(model->forward({&got.back(), 1}, cache, Logits::kLast, logits));
  }
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Folders, GoldenModel, testing::Values("qwen3_moe", "gpt_oss"),
                         [](const auto& tested) { return tested.param; });

std::vector<std::string> quantised_folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kQuantised)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenStorage : public testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path folder_ = kQuantised / GetParam();
  const json::Value about_ = read_json(folder_ / "golden.json");
  const GoldenTensors golden_{folder_ / "golden.safetensors"};
  const std::unique_ptr<LoadedFolder> loaded_ = open(folder_);
  const std::vector<std::int32_t> tokens_ = golden_.ids("input_ids");
};

TEST_P(GoldenStorage, GivesTheLogits) {
  ASSERT_NE(loaded_, nullptr);
  TestModel model(*loaded_, kExact);
  const double bound = about_.find("reference")->find("suggested_max_abs_error")->number();
  EXPECT_LE(largest_difference(model.logits(tokens_, 100), golden_.floats("logits")), bound);
}

TEST_P(GoldenStorage, GivesTheSameBitsForAnyThreadsChunksAndCalls) {
  ASSERT_NE(loaded_, nullptr);
  for (ModelOptions options : {kExact, kFast}) {
    const std::vector<float> want = TestModel(*loaded_, options).logits(tokens_, 100);
    for (const std::size_t threads : {2U, 3U}) {
      for (const std::uint32_t chunk : {1U, 5U, 64U}) {
        options.chunk_tokens = chunk;
        TestModel model(*loaded_, options, threads);
        EXPECT_EQ(model.logits(tokens_, 100), want) << threads << " " << chunk;
        EXPECT_EQ(model.logits(tokens_, 7), want) << threads << " " << chunk;
      }
    }
  }
}

TEST_P(GoldenStorage, GivesTheSameBitsForEveryInstructionSet) {
  ASSERT_NE(loaded_, nullptr);
  for (const ModelOptions& options : {kExact, kFast}) {
    std::vector<float> want;
    for (const kernels::KernelTable& kernels : kernels::available()) {
      const std::vector<float> got = TestModel(*loaded_, options, 1, kernels).logits(tokens_, 100);
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << kernels.isa;
    }
  }
}

// int8 activations: a number of a block of 32 is off by at most amax / 254, evenly spread, so in
// the mean square by amax / (127 sqrt(12)), and amax is at most sqrt(32) of the block's own root
// mean square: 1.29 % of each product's input, and F16 keys and values add 2^-11. To first order
// norms and residual sums pass relative errors on. A layer has four inputs, independent of each
// other: of the attention, its output, the MLP (twice, for gate and up see the same error and are
// multiplied: 4 in squares) and what lies between its halves: 7 in squares.
TEST_P(GoldenStorage, IsInFastModeWithinTheQuantisationOfActivations) {
  ASSERT_NE(loaded_, nullptr);
  const std::vector<float> exact = TestModel(*loaded_, kExact).logits(tokens_, 100);
  const std::vector<float> fast = TestModel(*loaded_, kFast).logits(tokens_, 100);
  double squares = 0.0, differences = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    squares += double{exact[i]} * double{exact[i]};
    differences += std::pow(double{fast[i]} - double{exact[i]}, 2);
  }
  const double input = std::sqrt(32.0) / (127.0 * std::sqrt(12.0)) + std::ldexp(1.0, -11);
  const double bound = input * std::sqrt(7.0 * loaded_->spec.num_layers);
  EXPECT_LE(std::sqrt(differences / squares), bound);
}

INSTANTIATE_TEST_SUITE_P(Folders, GoldenStorage, testing::ValuesIn(quantised_folders()),
                         [](const auto& tested) { return tested.param; });

TEST(StorageVariants, OfOneFloatModelGiveTheSameLogitsBitForBit) {
  std::vector<std::vector<float>> logits;
  for (const std::string name :
       {"bf16_per_expert_small", "bf16_fused_cat_small", "bf16_fused_transposed_small"}) {
    const auto loaded = open(kQuantised / name);
    ASSERT_NE(loaded, nullptr);
    const std::vector<std::int32_t> tokens = {1, 20, 300, 4, 50, 6, 70, 8};
    logits.push_back(TestModel(*loaded, kExact).logits(tokens, 8));
  }
  EXPECT_EQ(logits[1], logits[0]);
  EXPECT_EQ(logits[2], logits[0]);
}

}  // namespace
}  // namespace lode::model
