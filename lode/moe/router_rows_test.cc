#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lode/families/router_table.h"
#include "lode/moe/router.h"
#include "lode/moe/score.h"
#include "lode/moe/test_reference.h"

namespace lode::moe {
namespace {

using families::RouterRow;
using families::RouterSpec;
using families::Score;
using test::Reference;
using test::ReferenceInput;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Both reckon in f64, where hundreds of roundings stay below 1e-12; a weight is rounded to f32
/// once, by half its last place.
void expect_equal(const RouterSpec& spec, const ReferenceInput& input) {
  const Reference want = test::ReferenceRouter(spec, input).route();
  std::vector<std::int32_t> ids(spec.top_k);
  std::vector<float> weights(spec.top_k), scratch(route_scratch_floats(spec));
  const bool sure = route_row(spec, {input.logits, input.bias, input.expert_scale, input.fixed_ids},
                              scratch, {ids, weights});
  ASSERT_EQ(ids, want.ids);
  EXPECT_EQ(sure, want.sure);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double bound = std::abs(want.weights[i]) * (std::ldexp(1.0, -24) + 1e-12);
    EXPECT_NEAR(weights[i], want.weights[i], bound + std::ldexp(1.0, -150)) << "column " << i;
  }
}

enum class Rows { kRandom, kWide, kTied, kEqual, kNegative, kWithNan, kWithInfinity, kNothing };
constexpr std::array kAllRows = {Rows::kRandom,       Rows::kWide,     Rows::kTied,
                                 Rows::kEqual,        Rows::kNegative, Rows::kWithNan,
                                 Rows::kWithInfinity, Rows::kNothing};

class Generator {
 public:
  float number(float size) { return size * normal_(random_); }
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  float logit(Rows rows) {
    switch (rows) {
      case Rows::kWide:  // sigmoids that f32 makes 1, softmax scores that it makes 0
        return number(40.0F);
      case Rows::kTied:
        return 0.5F * static_cast<float>(below(5));
      case Rows::kEqual:
        return 1.25F;
      case Rows::kNegative:
        return -16.0F + number(0.7F);
      case Rows::kWithNan:
        return below(3) == 0 ? kNan : number(3.0F);
      case Rows::kWithInfinity:
        return below(4) == 0 ? kInfinity : below(4) == 0 ? -kInfinity : number(3.0F);
      case Rows::kNothing:
        return below(12) == 0 ? number(3.0F) : kNan;
      default:
        return number(3.0F);
    }
  }

  /// With a bias that is one number for all: sums of different terms would be ties in f64 only.
  ReferenceInput input(const RouterSpec& spec, Rows rows) {
    ReferenceInput out;
    const std::size_t size = spec.num_choices();
    for (std::size_t i = 0; i < size; ++i) out.logits.push_back(logit(rows));
    const bool constant = rows == Rows::kTied || rows == Rows::kEqual || rows == Rows::kNegative;
    for (std::size_t i = 0; spec.selection_bias && i < size; ++i) {
      out.bias.push_back(constant ? 35.0F : number(0.5F));
    }
    if (rows == Rows::kWithNan && spec.selection_bias) out.bias[below(5)] = kNan;
    for (std::size_t i = 0; spec.expert_scale && i < size; ++i) {
      out.expert_scale.push_back(1.0F + number(0.3F));
    }
    return out;
  }

 private:
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

/// The row as checkpoints may set it: each switch that a config has, both ways.
std::vector<RouterSpec> variants(const RouterRow& row) {
  std::vector<RouterSpec> out;
  for (int bits = 0; bits < 32; ++bits) {
    const auto set = [&](int bit, bool may) { return (bits >> bit & 1) != 0 && may; };
    const auto idle = [&](int bit, bool may) { return (bits >> bit & 1) != 0 && !may; };
    if (idle(0, row.from_config.renormalise) || idle(1, row.from_config.groups) ||
        idle(2, row.from_config.scaling) || idle(3, row.from_config.norm) ||
        idle(4, row.from_config.selection_bias)) {
      continue;
    }
    RouterSpec spec = row.spec;
    spec.renormalise = spec.renormalise != set(0, true);
    if (set(1, true)) spec.num_groups = 4, spec.top_k_groups = 2;
    if (set(2, true)) spec.scaling = 2.5F;
    if (set(3, true)) spec.norm_power = 2.0, spec.norm_floor = 0.05;
    spec.selection_bias = spec.selection_bias != set(4, true);
    out.push_back(spec);
  }
  return out;
}

class RouterRows : public testing::TestWithParam<RouterRow> {};

TEST_P(RouterRows, RoutesAsTheReferenceInF64) {
  Generator random;
  std::size_t tried = 0;
  for (RouterSpec spec : variants(GetParam())) {
    for (const std::uint32_t num_experts : {8U, 16U, 20U, 128U}) {
      spec.num_experts = num_experts;
      if (GetParam().family == "longcat_flash") spec.num_zero_experts = num_experts / 2;
      for (const std::uint32_t top_k : {1U, 2U, 4U}) {
        spec.top_k = spec.score == Score::kSparseMixer ? 2 : spec.weight_on_input ? 1 : top_k;
        ASSERT_TRUE(families::check_router(spec));
        for (const Rows rows : kAllRows) {
          SCOPED_TRACE(testing::Message() << "rows " << static_cast<int>(rows) << " experts "
                                          << num_experts << " top " << spec.top_k);
          for (int round = 0; round < 3; ++round, ++tried) {
            expect_equal(spec, random.input(spec, rows));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GE(tried, 90U);
}

INSTANTIATE_TEST_SUITE_P(All, RouterRows,
                         testing::ValuesIn(families::router_rows().begin(),
                                           families::router_rows().end()),
                         [](const auto& tested) { return std::string(tested.param.family); });

TEST(RouterTable, NamesEachFamilyOnce) {
  for (const RouterRow& row : families::router_rows()) {
    EXPECT_EQ(families::find_router_row(row.family), &row);
  }
  EXPECT_EQ(families::find_router_row("no such family"), nullptr);
}

// Source: field report 66. In f32, 35 + e^-18 is 35 for all of them.
TEST(Router, KeepsScoresApartUnderALargeBiasForAnyNumberOfExperts) {
  Generator random;
  RouterSpec spec{Score::kSigmoid, 0, 0, true, true};
  for (const std::uint32_t num_experts : {8U, 16U, 60U, 64U, 128U, 160U, 256U, 384U, 512U}) {
    for (std::uint32_t top_k = 1; top_k <= std::min(num_experts, 16U); ++top_k) {
      spec.num_experts = num_experts;
      spec.top_k = top_k;
      ReferenceInput input = random.input(spec, Rows::kNegative);
      expect_equal(spec, input);
      std::vector<std::int32_t> ids(top_k);
      std::vector<float> weights(top_k), scratch(route_scratch_floats(spec));
      route_row(spec, {input.logits, input.bias, {}, {}}, scratch, {ids, weights});
      EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1.0, 1e-6);
    }
  }
}

TEST(Router, TakesIdsFromTheTokenAndWeightsFromTheScores) {
  Generator random;
  RouterSpec spec = families::find_router_row("deepseek_v4")->spec;
  spec.num_experts = 16;
  spec.top_k = 4;
  spec.scaling = 1.5F;
  for (int round = 0; round < 100; ++round) {
    ReferenceInput input = random.input(spec, round % 2 == 0 ? Rows::kRandom : Rows::kWithInfinity);
    const auto first = static_cast<std::int32_t>(random.below(16));
    for (std::int32_t i = 0; i < 4; ++i) input.fixed_ids.push_back((first + 5 * i) % 16);
    expect_equal(spec, input);
  }
}

TEST(Router, MakesAFixedIdThatIsNoneOrComesTwiceNoExpert) {
  const RouterSpec spec{Score::kSigmoid, 4, 4, false, true};
  const std::vector<float> logits(4, 1.0F);
  const std::vector<std::int32_t> fixed = {2, 2, -7, 4};
  std::vector<std::int32_t> ids(4);
  std::vector<float> weights(4), scratch(route_scratch_floats(spec));
  EXPECT_FALSE(route_row(spec, {logits, {}, {}, fixed}, scratch, {ids, weights}));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, kNoExpert, kNoExpert, kNoExpert}));
  EXPECT_EQ(weights, (std::vector<float>{1.0F, 0.0F, 0.0F, 0.0F}));
}

TEST(Router, RefusesATableOfIdsWithOneThatIsNoneOrComesTwice) {
  const RouterSpec spec{Score::kSigmoid, 4, 2};
  EXPECT_TRUE(check_expert_table(spec, std::vector<std::int32_t>{0, 1, 3, 2}));
  const Status twice = check_expert_table(spec, std::vector<std::int32_t>{0, 1, 3, 3});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().where, "token 1");
  EXPECT_EQ(twice.error().found, "3");
  EXPECT_FALSE(check_expert_table(spec, std::vector<std::int32_t>{0, 4}));
  EXPECT_FALSE(check_expert_table(spec, std::vector<std::int32_t>{-1, 0}));
  EXPECT_FALSE(check_expert_table(spec, std::vector<std::int32_t>{0, 1, 2}));
}

TEST(Router, TakesZeroExpertsOutOfARowAndSumsTheirWeights) {
  std::vector<std::int32_t> ids = {5, 1, 4, kNoExpert};
  std::vector<float> weights = {0.5F, 0.25F, 0.125F, 0.0F};
  EXPECT_EQ(take_zero_experts(4, {ids, weights}), 0.625F);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{kNoExpert, 1, kNoExpert, kNoExpert}));
  EXPECT_EQ(weights, (std::vector<float>{0.0F, 0.25F, 0.0F, 0.0F}));
}

TEST(ExpF64, IsWithinTwoUlpOfLibm) {
  Generator random;
  for (int round = 0; round < 20000; ++round) {
    const double x = double{random.number(1.0F)} * (round % 2 == 0 ? 1.0 : 250.0);
    if (x > 700.0 || x < -700.0) continue;
    EXPECT_NEAR(exp_f64(x) / std::exp(x), 1.0, std::ldexp(1.0, -51)) << x;
  }
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(exp_f64(-1e30), 0.0);
}

}  // namespace
}  // namespace lode::moe
