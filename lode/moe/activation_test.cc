#include "lode/moe/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lode/moe/test_golden.h"

namespace lode::moe {
namespace {

using families::Activation;

std::vector<float> run(const GatedActivation& activation, std::vector<float> gate,
                       const std::vector<float>& up) {
  activate(activation, gate, up, gate);
  return gate;
}

// The golden numbers are written with ten decimals; f32 adds a few roundings of numbers up to 18.
void expect_golden(const std::vector<float>& got, std::string_view name) {
  const json::Value& golden = (*test::section("activation").as_array())[0];
  const std::vector<float> want = test::floats(*golden.find(name));
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-9 + 6e-7 * std::abs(want[i])) << name << " " << i;
  }
}

TEST(Activation, GivesTheGoldenNumbers) {
  const json::Value& golden = (*test::section("activation").as_array())[0];
  const std::vector<float> input = test::floats(*golden.find("input"));
  const std::vector<float> gate(input.begin(), input.begin() + 4),
      up(input.begin() + 4, input.end());
  expect_golden(run({Activation::kSilu}, gate, up), "silu");
  expect_golden(run({Activation::kGelu}, gate, up), "gelu");
  expect_golden(run({Activation::kGeluTanh}, gate, up), "gelu_tanh");
  expect_golden(run({Activation::kSwigluOai}, gate, up), "swigluoai_uninterleave_alpha1702_limit7");
  expect_golden(run({Activation::kSiluClamped}, gate, up), "silu_clamp_limit7");
  expect_golden(run({Activation::kSwigluStep}, gate, up), "swiglustep_limit7");
  expect_golden(run({Activation::kSitu, 0.0F, 0.0F, 2.0F, 3.0F}, gate, up), "situ_beta2_linear3");
  expect_golden(run({Activation::kPlainRelu2}, input, {}), "relu2_no_mul");
  expect_golden(run({Activation::kPlainSilu}, input, {}), "silu_no_mul");
  std::vector<float> even, odd;
  for (std::size_t i = 0; i < input.size(); i += 2) {
    even.push_back(input[i]);
    odd.push_back(input[i + 1]);
  }
  expect_golden(run({Activation::kSwigluOai}, even, odd), "swigluoai_interleaved_alpha1702_limit7");
}

// Source: spec checkpoints_models 3.2, six decimals.
TEST(Activation, OfGptOssClampsTheGateFromAboveOnly) {
  const std::vector<float> gate = {1.0F, -1.0F, 10.0F, 2.0F, -3.0F};
  const std::vector<float> up = {0.0F, 0.5F, 2.0F, -9.0F, 8.0F};
  const std::vector<float> want = {0.845796F, -0.231306F, 20.999859F, -11.613952F, -0.144570F};
  const std::vector<float> got = run({Activation::kSwigluOai}, gate, up);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
}

// Source: spec moe_runner_eplb 3.3; checkpoints_models 3.14, (10, 2) and (2, -9) at limit 7.
TEST(Activation, ThatClampsFirstAndThatClampsAfterDifferWhereTheGateIsAboveTheLimit) {
  const auto first = run({Activation::kSiluClamped}, {8.0F}, {1.0F});
  EXPECT_NEAR(first[0], 6.9936F, 5e-5);
  EXPECT_EQ(run({Activation::kSwigluStep}, {8.0F}, {1.0F})[0], 7.0F);
  const std::vector<float> after = run({Activation::kSwigluStep}, {10.0F, 2.0F}, {2.0F, -9.0F});
  EXPECT_EQ(after[0], 14.0F);
  EXPECT_NEAR(after[1], -12.331159F, 2e-6);
}

// By the formula in f64, with numbers that no family has.
TEST(Activation, OfMiniMaxTakesItsOwnAlphaConstantAndLimit) {
  const float g = 2.5F, u = -4.0F;
  const double gate = 1.5, up = -1.5, alpha = 1.25, added = 0.5;
  const double want = (up + added) * gate / (1.0 + std::exp(-alpha * gate));
  EXPECT_NEAR(run({Activation::kSwigluOai, 1.25F, 1.5F, 0.5F}, {g}, {u})[0], want, 1e-6);
}

TEST(Activation, OfKimiMayLeaveTheUpProductAlone) {
  const double want = 2.0 * std::tanh(0.75) / (1.0 + std::exp(-1.5)) * 40.0;
  EXPECT_NEAR(run({Activation::kSitu, 0.0F, 0.0F, 2.0F}, {1.5F}, {40.0F})[0], want, 5e-5);
}

TEST(Activation, ThatIsNotGatedReadsNoUpProduct) {
  for (const Activation kind : {Activation::kPlainGelu, Activation::kPlainGeluTanh}) {
    EXPECT_FALSE(is_gated(kind));
    const Activation gated =
        kind == Activation::kPlainGelu ? Activation::kGelu : Activation::kGeluTanh;
    EXPECT_TRUE(is_gated(gated));
    EXPECT_EQ(run({kind}, {0.75F, -2.0F}, {}), run({gated}, {0.75F, -2.0F}, {1.0F, 1.0F}));
  }
}

TEST(Activation, KeepsANanOfEitherProduct) {
  for (const Activation kind : {Activation::kSilu, Activation::kSwigluOai, Activation::kSiluClamped,
                                Activation::kSwigluStep, Activation::kSitu}) {
    EXPECT_TRUE(std::isnan(run({kind}, {NAN}, {1.0F})[0]));
    EXPECT_TRUE(std::isnan(run({kind}, {1.0F}, {NAN})[0]));
  }
  EXPECT_TRUE(std::isnan(run({Activation::kPlainRelu2}, {NAN}, {})[0]));
}

TEST(Activation, OfFarNegativeGatesIsZeroAndNotNan) {
  for (const Activation kind : {Activation::kSilu, Activation::kSwigluOai, Activation::kGeluTanh}) {
    EXPECT_EQ(std::abs(run({kind}, {-300.0F}, {1.0F})[0]), 0.0F);
  }
}

}  // namespace
}  // namespace lode::moe
