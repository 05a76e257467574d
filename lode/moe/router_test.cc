#include "lode/moe/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lode/moe/test_golden.h"
#include "lode/moe/test_reference.h"

namespace lode::moe {
namespace {

using families::RouterSpec;
using families::Score;

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  bool sure = false;
};

Routed route(const RouterSpec& spec, const std::vector<float>& logits,
             const std::vector<float>& bias = {}, const std::vector<float>& expert_scale = {}) {
  Routed out{std::vector<std::int32_t>(spec.top_k), std::vector<float>(spec.top_k)};
  std::vector<float> scratch(route_scratch_floats(spec));
  out.sure = route_row(spec, {logits, bias, expert_scale, {}}, scratch, {out.ids, out.weights});
  return out;
}

std::uint32_t count_at(const json::Value& object, std::string_view name, std::uint32_t absent) {
  const json::Value* value = object.find(name);
  return value == nullptr ? absent : static_cast<std::uint32_t>(value->number());
}

Score score_of(const json::Value& config) {
  const json::Value* method = config.find("method");
  if (method != nullptr && *method->as_string() == "topk_softmax") return Score::kTopKSoftmax;
  if (method != nullptr && *method->as_string() == "llama4") return Score::kSigmoid;
  const std::string& score = *config.find("score")->as_string();
  if (score == "sigmoid") return Score::kSigmoid;
  return score == "softmax" ? Score::kSoftmax : Score::kSqrtSoftplus;
}

RouterSpec spec_of(const json::Value& config, std::size_t num_experts) {
  RouterSpec spec;
  spec.score = score_of(config);
  spec.num_experts = static_cast<std::uint32_t>(num_experts);
  spec.top_k = count_at(config, "top_k", 0);
  spec.num_groups = count_at(config, "n_group", 1);
  spec.top_k_groups = count_at(config, "topk_group", 1);
  const json::Value* renormalise = config.find("renorm");
  spec.renormalise = renormalise != nullptr && *renormalise->as_bool();
  const json::Value* scaling = config.find("scaling");
  if (scaling != nullptr) spec.scaling = static_cast<float>(scaling->number());
  return spec;
}

std::vector<float> floats_at(const json::Value& object, std::string_view name) {
  const json::Value* list = object.find(name);
  return list == nullptr ? std::vector<float>{} : test::floats(*list);
}

void expect_routed(const Routed& got, const json::Value& ids, const json::Value& weights,
                   double scaling) {
  const std::vector<float> want_ids = test::floats(ids), want_weights = test::floats(weights);
  ASSERT_EQ(got.ids.size(), want_ids.size());
  for (std::size_t column = 0; column < want_ids.size(); ++column) {
    EXPECT_EQ(got.ids[column], static_cast<std::int32_t>(want_ids[column])) << column;
    // The golden file's own bound for routing in float32.
    EXPECT_NEAR(got.weights[column], want_weights[column], 1e-6 * std::max(1.0, scaling));
  }
}

TEST(Router, GivesTheGoldenChoicesAndWeights) {
  std::size_t tried = 0;
  for (const json::Value& test : *test::section("routing").as_array()) {
    SCOPED_TRACE(*test.find("name")->as_string());
    const json::Array& rows = *test.find("logits")->as_array();
    const std::vector<float> bias = floats_at(test, "e_score_correction_bias");
    const std::vector<float> expert_scale = floats_at(test, "per_expert_scale");
    RouterSpec spec = spec_of(*test.find("config"), rows[0].as_array()->size());
    spec.selection_bias = !bias.empty();
    spec.expert_scale = !expert_scale.empty();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const Routed got = route(spec, test::floats(rows[row]), bias, expert_scale);
      EXPECT_TRUE(got.sure);
      expect_routed(got, (*test.find("topk_ids")->as_array())[row],
                    (*test.find("topk_weights")->as_array())[row], double{spec.scaling});
      ++tried;
    }
  }
  EXPECT_GE(tried, 50U);
}

TEST(Router, WalksThroughGroupsAsTheSpecDoes) {
  const json::Value& walk = test::section("noaux_tc_walkthrough");
  RouterSpec spec{Score::kSigmoid, 8, 3, true, true, 4, 2, 2.5F};
  const Routed got =
      route(spec, test::floats(*walk.find("logits")), test::floats(*walk.find("bias")));
  expect_routed(got, *walk.find("topk_ids"), *walk.find("topk_weights"), 2.5);
  spec.num_groups = spec.top_k_groups = 1;
  const Routed ungrouped =
      route(spec, test::floats(*walk.find("logits")), test::floats(*walk.find("bias")));
  EXPECT_EQ(ungrouped.ids, (std::vector<std::int32_t>{2, 5, 1}));
}

// Three of the eight golden cases keep the result of other engines' ungrouped kernels, where a bad
// logit counts as score 0 or spoils its row; with ours it is never chosen.
TEST(Router, NeverChoosesANonFiniteLogit) {
  const std::vector<std::size_t> ours_differs = {0, 3, 7};
  const json::Array& cases = *test::section("nonfinite").find("cases")->as_array();
  for (std::size_t index = 0; index < cases.size(); ++index) {
    SCOPED_TRACE(index);
    const json::Value& entry = cases[index];
    const std::vector<float> logits = test::floats(*entry.find("logits"));
    const Routed got = route(spec_of(entry, logits.size()), logits);
    if (std::count(ours_differs.begin(), ours_differs.end(), index) == 0) {
      expect_routed(got, *entry.find("topk_ids"), *entry.find("topk_weights"), 1.0);
      continue;
    }
    const RouterSpec spec = spec_of(entry, logits.size());
    const test::Reference want = test::ReferenceRouter(spec, {logits, {}, {}, {}}).route();
    EXPECT_TRUE(got.sure);
    EXPECT_EQ(got.ids, want.ids);
    for (std::size_t column = 0; column < want.ids.size(); ++column) {
      EXPECT_TRUE(std::isfinite(logits[static_cast<std::size_t>(got.ids[column])]));
      EXPECT_NEAR(got.weights[column], want.weights[column], 1e-7);
    }
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Router, FillsUpWithTheLowestUnusedIdsAtWeightZeroAndSaysSo) {
  const RouterSpec spec{Score::kSoftmax, 5, 3, false, true};
  const Routed one = route(spec, {kNan, kNan, 2.0F, kNan, kNan});
  EXPECT_FALSE(one.sure);
  EXPECT_EQ(one.ids, (std::vector<std::int32_t>{2, 0, 1}));
  EXPECT_EQ(one.weights, (std::vector<float>{1.0F, 0.0F, 0.0F}));
  const Routed none = route(spec, std::vector<float>(5, kNan));
  EXPECT_FALSE(none.sure);
  EXPECT_EQ(none.ids, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(none.weights, (std::vector<float>{0.0F, 0.0F, 0.0F}));
}

TEST(Router, NeverChoosesABiasThatIsNotFinite) {
  const RouterSpec spec{Score::kSigmoid, 4, 2, true, false};
  const Routed got = route(spec, {1.0F, 2.0F, 3.0F, 0.0F}, {0.0F, kNan, HUGE_VALF, 0.0F});
  EXPECT_TRUE(got.sure);
  EXPECT_EQ(got.ids, (std::vector<std::int32_t>{0, 3}));
}

// Biased scores below -1, and a kept group whose experts are all negative: an arg-max that begins
// at -1, or a mask of zeros, would choose others.
TEST(Router, ChoosesAmongNegativeBiasedScores) {
  const RouterSpec spec{Score::kSigmoid, 4, 2, true, false, 2, 1};
  const Routed got = route(spec, {0.0F, 1.0F, 5.0F, 6.0F}, {-3.0F, -3.0F, -9.0F, -9.0F});
  EXPECT_EQ(got.ids, (std::vector<std::int32_t>{1, 0}));
}

TEST(Router, KeepsLogitsApartThatSoftmaxMergesIntoOneScore) {
  // exp(-200) and exp(-199) are both 0 in f32; the larger logit still goes first.
  const RouterSpec spec{Score::kSoftmax, 3, 2, false, false};
  EXPECT_EQ(route(spec, {0.0F, -200.0F, -199.0F}).ids, (std::vector<std::int32_t>{0, 2}));
}

TEST(Router, ChoosesAllExpertsWhereTopKIsTheirNumber) {
  const RouterSpec spec{Score::kSigmoid, 3, 3, false, true};
  EXPECT_EQ(route(spec, {1.0F, 3.0F, 2.0F}).ids, (std::vector<std::int32_t>{1, 2, 0}));
}

TEST(Router, MarksPaddingRows) {
  std::vector<std::int32_t> ids(2, 7);
  std::vector<float> weights(2, 7.0F);
  route_padding({ids, weights});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{-1, -1}));
  EXPECT_EQ(weights, (std::vector<float>{0.0F, 0.0F}));
}

}  // namespace
}  // namespace lode::moe
