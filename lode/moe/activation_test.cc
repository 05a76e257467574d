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

TEST(Activation, OfFarNegativeGatesIsZeroAndNotNan) {
  for (const Activation kind : {Activation::kSilu, Activation::kSwigluOai, Activation::kGeluTanh}) {
    EXPECT_EQ(std::abs(run({kind}, {-300.0F}, {1.0F})[0]), 0.0F);
  }
}

}  // namespace
}  // namespace lode::moe
