#include "lode/families/router_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lode/families/router_table.h"

namespace lode::families {
namespace {

RouterSpec valid() { return {Score::kSigmoid, 16, 4, true, true, 4, 2, 2.5F}; }

std::string refused(const RouterSpec& spec) {
  const Status status = check_router(spec);
  return status ? "" : status.error().thing;
}

template <class Value>
std::string refused_with(Value RouterSpec::*member, Value value) {
  RouterSpec spec = valid();
  spec.*member = value;
  return refused(spec);
}

TEST(CheckRouter, TakesEveryRowOfTheTable) {
  EXPECT_EQ(refused(valid()), "");
  for (const RouterRow& row : router_rows()) {
    RouterSpec spec = row.spec;
    spec.num_experts = 8;
    spec.top_k = spec.weight_on_input ? 1 : 2;
    EXPECT_EQ(refused(spec), "") << row.family;
  }
}

TEST(CheckRouter, NamesTheKeyThatCannotBe) {
  EXPECT_EQ(refused_with(&RouterSpec::num_experts, 0U), "num_experts");
  EXPECT_EQ(refused_with(&RouterSpec::num_experts, 65537U), "num_experts");
  EXPECT_EQ(refused_with(&RouterSpec::num_zero_experts, 4000000000U), "zero_expert_num");
  EXPECT_EQ(refused_with(&RouterSpec::top_k, 0U), "num_experts_per_tok");
  EXPECT_EQ(refused_with(&RouterSpec::top_k, 17U), "num_experts_per_tok");
  EXPECT_EQ(refused_with(&RouterSpec::scaling, NAN), "routed_scaling_factor");
  EXPECT_EQ(refused_with(&RouterSpec::scaling, 0.0F), "routed_scaling_factor");
  EXPECT_EQ(refused_with(&RouterSpec::norm_power, 0.0), "moe_normalize_expert_weights");
  EXPECT_EQ(refused_with(&RouterSpec::norm_power, HUGE_VAL), "moe_normalize_expert_weights");
  EXPECT_EQ(refused_with(&RouterSpec::norm_add, -1.0), "norm_add");
  EXPECT_EQ(refused_with(&RouterSpec::norm_floor, std::nan("")), "moe_norm_min");
}

TEST(CheckRouter, RefusesWeightsOnTheInputOfMoreExpertsThanOne) {
  EXPECT_EQ(refused_with(&RouterSpec::weight_on_input, true), "num_experts_per_tok");
}

// Other engines choose without groups there, without a word.
TEST(CheckRouter, RefusesGroupsThatDoNotWorkOut) {
  EXPECT_EQ(refused_with(&RouterSpec::num_groups, 0U), "n_group");
  EXPECT_EQ(refused_with(&RouterSpec::num_groups, 5U), "n_group");
  EXPECT_EQ(refused_with(&RouterSpec::num_groups, 16U), "n_group");
  EXPECT_EQ(refused_with(&RouterSpec::num_groups, 17U), "n_group");
  EXPECT_EQ(refused_with(&RouterSpec::num_groups, 1U), "topk_group");
  EXPECT_EQ(refused_with(&RouterSpec::top_k_groups, 0U), "topk_group");
  EXPECT_EQ(refused_with(&RouterSpec::top_k_groups, 5U), "topk_group");
  EXPECT_EQ(refused_with(&RouterSpec::top_k, 9U), "topk_group");
  EXPECT_EQ(refused_with(&RouterSpec::num_zero_experts, 4U), "n_group");
}

TEST(CheckRouter, RefusesASparseMixerWithOtherThanTwoExpertsOrWithGroups) {
  RouterSpec spec{Score::kSparseMixer, 16, 2};
  EXPECT_EQ(refused(spec), "");
  spec.top_k = 3;
  EXPECT_EQ(refused(spec), "num_experts_per_tok");
  spec.top_k = 2;
  spec.near = NAN;
  EXPECT_EQ(refused(spec), "router_jitter_noise");
  spec.near = 0.0;
  EXPECT_EQ(refused(spec), "");
  spec.num_groups = 4;
  EXPECT_EQ(refused(spec), "n_group");
}

}  // namespace
}  // namespace lode::families
