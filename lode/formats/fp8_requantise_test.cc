#include "lode/formats/fp8_requantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lode/formats/test_layout_case.h"

namespace lode::formats {
namespace {

using golden::Bytes;
using golden::differing;
using golden::LayoutCase;

/// w13 of a golden case with the halves of every expert brought to one scale.
Bytes requantised(const LayoutCase& golden, ScaleRounding rounding) {
  Bytes codes = golden.bytes("in.w13");
  const std::vector<float> scales = golden.floats("in.w13_scale");
  const std::size_t half = codes.size() / scales.size();
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const float largest = largest_scale(std::span(scales).subspan(i / 2 * 2, 2));
    const auto part = std::span(codes).subspan(i * half, half);
    map_codes(requantise_map(scales[i], largest, rounding), part.data(), part.size(), part.data());
  }
  return codes;
}

TEST(RequantiseMap, GivesTheEnginesCodes) {
  const LayoutCase golden("fp8_tensor_moe_requant");
  EXPECT_EQ(differing(requantised(golden, ScaleRounding::kToF16), golden.bytes("out.w13")), 0U);
  EXPECT_EQ(differing(requantised(golden, ScaleRounding::kNone), golden.bytes("out.w13")), 0U);
}

TEST(RequantiseMap, RoundsTheScaleAsTheGpuDoesAndCanLeaveItAsTheCpuDoes) {
  const LayoutCase golden("fp8_tensor_moe_requant_rounded_scale");
  const Bytes gpu = requantised(golden, ScaleRounding::kToF16);
  const Bytes cpu = requantised(golden, ScaleRounding::kNone);
  EXPECT_EQ(differing(gpu, golden.bytes("out.gpu_w13")), 0U);
  EXPECT_EQ(differing(cpu, golden.bytes("out.cpu_w13")), 0U);
  EXPECT_EQ(differing(gpu, cpu), 112U);  // the manifest's differing_bytes_cpu_gpu
}

// The least number of FP16 is 2^-24: 2^-26 becomes zero.
TEST(RequantiseMap, IsNotTheIdentityWhereFp16CannotHoldTheScale) {
  const CodeMap exact = requantise_map(0.5F, 0.5F);
  EXPECT_EQ(exact.of[0x31], 0x31);
  const float tiny = std::ldexp(1.0F, -26);
  EXPECT_EQ(requantise_map(tiny, tiny).of[0x71], 0x00);
  EXPECT_EQ(requantise_map(tiny, tiny, ScaleRounding::kNone).of[0x71], 0x71);
}

TEST(StaticQuantiser, MakesNanTheLargest) {
  EXPECT_EQ(quantise_static(NAN, 1.0F), 0x7E);
  EXPECT_EQ(quantise_static(-NAN, 1.0F), 0x7E);
  EXPECT_EQ(quantise_static(0.0F, 1.0F / 0.0F), 0x7E);
  EXPECT_EQ(quantise_static(HUGE_VALF, 1.0F), 0x7E);
  EXPECT_EQ(quantise_static(-HUGE_VALF, 1.0F), 0xFE);
  EXPECT_EQ(quantise_static(-1.0F, 1.0F), 0xB8);
}

TEST(RequantiseMap, NanCodesAndAZeroScaleEndAtTheLargest) {
  EXPECT_EQ(requantise_map(1.0F, 1.0F).of[0x7F], 0x7E);
  EXPECT_EQ(requantise_map(1.0F, 1.0F).of[0xFF], 0x7E);
  EXPECT_EQ(requantise_map(0.0F, 0.0F).of[0x38], 0x7E);
}

// weight_layouts 3.1: 1/(448*512) = 4.3596e-6.
TEST(DynamicQuantiser, HasALeastScale) {
  EXPECT_NEAR(dynamic_scale(0.0F), 4.3596e-6F, 1e-10F);
  EXPECT_EQ(dynamic_scale(896.0F), 2.0F);
  EXPECT_EQ(quantise_dynamic(896.0F, 2.0F), 0x7E);
  EXPECT_EQ(quantise_dynamic(-2.0F, 2.0F), 0xB8);
}

TEST(RequantiseShards, GivesTheEnginesMatrix) {
  const LayoutCase golden("fp8_tensor_dense_requant");
  const std::vector<std::uint64_t> rows{32, 16, 16};
  Bytes codes = golden.bytes("in.weight");
  const auto scale = requantise_shards(codes, 64, rows, golden.floats("in.weight_scale"));
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(*scale, golden.floats("out.weight_scale")[0]);
  EXPECT_EQ(differing(codes, golden.bytes("out.weight")), 0U);
}

TEST(RequantiseShards, LeavesAMatrixWhoseLastScaleWasNeverLoaded) {
  const LayoutCase golden("fp8_tensor_dense_requant");
  const std::vector<std::uint64_t> rows{32, 16, 16};
  Bytes codes = golden.bytes("in.weight");
  const auto scale = requantise_shards(codes, 64, rows, golden.floats("in.weight_scale_unloaded"));
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(*scale, golden.floats("out.weight_scale_unloaded")[0]);
  EXPECT_EQ(differing(codes, golden.bytes("out.weight_unloaded")), 0U);
}

TEST(RequantiseShards, PassesOverAShardWithoutRows) {
  Bytes codes(4, std::byte{0x38});
  const std::vector<std::uint64_t> rows{2, 0};
  const auto scale = requantise_shards(codes, 2, rows, std::vector<float>{1.0F, 2.0F});
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(*scale, 2.0F);
  EXPECT_EQ(codes, Bytes(4, std::byte{0x30}));  // 1 / 2
}

TEST(RequantiseShards, RefusesSizesThatDoNotAgree) {
  Bytes codes(4);
  const std::vector<float> scales{1.0F, 2.0F};
  const std::vector<std::uint64_t> three{1, 1, 1};
  const std::vector<std::uint64_t> short_rows{1, 0};
  const std::vector<std::uint64_t> huge{~std::uint64_t{0}, 2};
  for (const auto& rows : {three, short_rows, huge, std::vector<std::uint64_t>{}}) {
    const auto got = requantise_shards(codes, 2, rows, scales);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Code::kInvalidSource);
  }
}

TEST(ChannelwiseScales, RepeatTheScaleOfEachShard) {
  const LayoutCase golden("fp8_convert_to_channelwise");
  const std::vector<std::uint64_t> rows{32, 16, 16};
  const auto got = channelwise_scales(rows, golden.floats("in.weight_scale"));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(*got, golden.floats("out.out"));
}

TEST(ChannelwiseScales, RefuseMoreRowsThanAMatrixHas) {
  const std::vector<float> scales{1.0F, 2.0F};
  for (const std::uint64_t rows : {~std::uint64_t{0}, std::uint64_t{1} << 31}) {
    EXPECT_FALSE(channelwise_scales(std::vector<std::uint64_t>{rows, 1}, scales).has_value());
  }
  EXPECT_FALSE(channelwise_scales(std::vector<std::uint64_t>{1}, scales).has_value());
}

TEST(LargestScale, PassesOverNan) {
  EXPECT_EQ(largest_scale({}), 0.0F);
  EXPECT_EQ(largest_scale(std::vector<float>{NAN, 1.0F, 3.0F}), 3.0F);
  EXPECT_EQ(largest_scale(std::vector<float>{-2.0F, -1.0F}), -1.0F);
}

TEST(Fnuz, GivesTheEnginesBytes) {
  const LayoutCase golden("fp8_fnuz");
  Bytes codes = golden.bytes("in.weight");
  map_codes(fnuz_map(), codes.data(), codes.size(), codes.data());
  EXPECT_EQ(codes, golden.bytes("out.weight"));
  EXPECT_EQ(codes, golden.bytes("out.weight_block"));
  std::vector<float> scales = golden.floats("in.block_scale");
  for (float& scale : scales) scale = fnuz_scale(scale);
  EXPECT_EQ(scales, golden.floats("out.block_scale"));
  Bytes bytes = golden.bytes("in.e8m0");
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(fnuz_scale_e8m0(std::to_integer<std::uint8_t>(byte)));
  }
  EXPECT_EQ(bytes, golden.bytes("out.e8m0"));
}

}  // namespace
}  // namespace lode::formats
