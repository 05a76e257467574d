#include "lode/engine/engine_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/base/bytes.h"
#include "lode/formats/format.h"

namespace lode::engine {
namespace {

using targets::Target;

constexpr std::uint64_t kW13 = 3584 * kMiB;  // 3.50 GiB
constexpr std::uint64_t kW2 = 1792 * kMiB;
constexpr std::uint64_t kExpert = 21 * kMiB;

// The layer of the worked numbers: 256 experts, hidden 7168, intermediate 2048.
loader::EngineBankPlan worked_bank(const loader::EngineChoice& choice,
                                   const formats::Encoding& encoding = formats::kNvfp4) {
  targets::ExpertsShape shape;
  shape.hidden = 7168;
  shape.intermediate = 2048;
  shape.encoding = encoding;
  shape.scale_format = encoding.scale;
  std::vector<std::uint32_t> experts(256);
  auto bank = loader::plan_engine_bank(shape, choice, experts);
  LODE_CHECK(bank, "the worked layer that cannot be planned");
  return *std::move(bank);
}

std::vector<EngineWay> worked_ways(Target target) {
  const loader::EngineChoice choice{.target = target, .options = {}, .experts = {}};
  const loader::EngineBankPlan bank = worked_bank(choice);
  return engine_ways(target, route_from(bank, choice), layer_weights(bank, choice));
}

// weight_layouts 4.4: W13 3.50 GiB, W2 1.75, scales 0.66.
TEST(EngineWays, TheWorkedLayerHasTheBytesOfTheSpecification) {
  const loader::EngineChoice choice{.target = Target::kMarlin, .options = {}, .experts = {}};
  const LayerWeights weights = layer_weights(worked_bank(choice), choice);
  EXPECT_EQ(weights.num_experts, 256U);
  EXPECT_EQ(weights.gate_up_bytes, kW13);
  EXPECT_EQ(weights.down_bytes, kW2);
  EXPECT_EQ(weights.gate_up_scale_bytes + weights.down_scale_bytes, 672 * kMiB);
  EXPECT_EQ((weights.gate_up_bytes + weights.down_bytes) / 256, kExpert);
}

// weight_layouts 4.4: 7.0 GiB before, 5.25 and about two experts since.
TEST(EngineWays, MarlinTookSevenGibOfTheWorkedLayerAndTakesALayerAndTwoExpertsNow) {
  const std::vector<EngineWay> ways = worked_ways(Target::kMarlin);
  ASSERT_EQ(ways.size(), 2U);
  EXPECT_EQ(ways[0].when, "before vLLM #47851");
  EXPECT_EQ(ways[0].formula, "max(2*W13, W13+2*W2)");
  EXPECT_EQ(ways[0].extra_bytes, 7 * kGiB);
  EXPECT_EQ(ways[1].when, "since vLLM #47851");
  EXPECT_EQ(ways[1].extra_bytes, 5376 * kMiB + 2 * kExpert);
}

TEST(EngineWays, AListOfALargeW2CountsMoreThanThatOfASmallW13) {
  const LayerWeights weights{.num_experts = 2, .gate_up_bytes = 100, .down_bytes = 80};
  EXPECT_EQ(engine_ways(Target::kMarlin, "fp8-block", weights).at(0).extra_bytes, 260U);
  EXPECT_EQ(engine_ways(Target::kFlashinferTrtllm, "nvfp4", weights).at(0).extra_bytes, 280U);
}

TEST(EngineWays, ASwapThroughACopyTakesW13AndItsScaleAndOneInChunksTheLargerOfChunkAndSwizzle) {
  const std::vector<EngineWay> ways = worked_ways(Target::kFlashinferCutlass);
  ASSERT_EQ(ways.size(), 2U);
  EXPECT_EQ(ways[0].extra_bytes, kW13 + 448 * kMiB);
  EXPECT_EQ(ways[1].extra_bytes, 896 * kMiB);  // two of the scales of w13
  LayerWeights weights{.num_experts = 2, .gate_up_bytes = kGiB, .gate_up_scale_bytes = kMiB};
  EXPECT_EQ(engine_ways(Target::kFlashinferCutlass, "nvfp4", weights).at(1).extra_bytes, 64 * kMiB);
  weights.gate_up_bytes = 32 * kMiB;
  EXPECT_EQ(engine_ways(Target::kFlashinferCutlass, "nvfp4", weights).at(1).extra_bytes, 16 * kMiB);
}

TEST(EngineWays, NothingIsSwappedInLayersThatAreNotGated) {
  const LayerWeights weights{
      .num_experts = 2, .gate_up_bytes = 64, .gate_up_scale_bytes = 4, .gated = false};
  for (const EngineWay& way : engine_ways(Target::kFlashinferCutlass, "nvfp4", weights)) {
    EXPECT_EQ(way.extra_bytes, 8U);
  }
}

// weight_layouts 4.4: 1.5 times the layer in 16 bits, where it becomes FP8.
TEST(EngineWays, QuantisingALayerToFp8TakesOneAndAHalfTimesItsBytesIn16Bits) {
  const loader::EngineChoice choice{
      .target = Target::kMarlin, .options = {.online = "fp8-channel"}, .experts = {}};
  const loader::EngineBankPlan bank = worked_bank(choice, formats::kPlainBf16);
  const LayerWeights weights = layer_weights(bank, choice);
  const std::uint64_t in_16_bits = std::uint64_t{256} * 3 * 2048 * 7168 * 2;
  EXPECT_EQ(weights.unquantised_bytes, in_16_bits);
  const auto ways = engine_ways(Target::kMarlin, route_from(bank, choice), weights);
  ASSERT_EQ(ways.size(), 2U);  // to FP8, and then to Marlin's tiles
  EXPECT_EQ(ways[0].extra_bytes, in_16_bits / 2 * 3);
}

TEST(EngineWays, EveryRouteHasAWayThatIsTodays) {
  for (const targets::Route& route : targets::route_table()) {
    const auto ways = engine_ways(route.target, route.from, {.num_experts = 1});
    ASSERT_FALSE(ways.empty()) << targets::name(route.target) << " from " << route.from;
    EXPECT_FALSE(ways.back().when.starts_with("before"));
  }
}

TEST(EngineWays, WhatIsNoRouteHasNone) {
  EXPECT_TRUE(engine_ways(Target::kDeepgemm, "nvfp4", {.num_experts = 1}).empty());
  EXPECT_TRUE(engine_ways(Target::kMarlin, "", {.num_experts = 1}).empty());
}

}  // namespace
}  // namespace lode::engine
