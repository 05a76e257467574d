#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/function_values.h"
#include "lode/targets/test_golden_functions.h"

namespace lode::targets {
namespace {

using formats::Format;
using Tensors = std::vector<NamedTensor>;

TEST(Fp8Functions, GiveTheEnginesBytesInEveryWay) {
  EXPECT_EQ(testing::check_cases(fp8_functions()), 7U);
  EXPECT_EQ(testing::check_cases(fp8_block_functions()), 5U);
  EXPECT_EQ(testing::check_cases(decode_functions()), 1U);
}

TEST(OnlineFunctions, GiveTheEnginesBytesInEveryWay) {
  EXPECT_EQ(testing::check_cases(online_functions()), 8U);
}

Result<Tensors> run(std::string_view name, const Tensors& inputs,
                    const json::Value& params = json::Object{}) {
  return function_by_name(name)->run({inputs, params, Way::kOutOfPlace});
}

NamedTensor tensor(std::string name, Format dtype, std::vector<std::uint64_t> shape) {
  auto made = make_tensor(name, dtype, std::move(shape));
  EXPECT_TRUE(made.has_value());
  return *std::move(made);
}

TEST(Fp8Functions, RefuseToRunWithoutTheirTensors) {
  for (const auto list : {fp8_functions, fp8_block_functions, online_functions}) {
    for (const Function& one : list()) {
      if (one.name == "deepgemm-scales") continue;  // any tensors, or none
      EXPECT_FALSE(run(one.name, {}).has_value()) << one.name;
    }
  }
}

TEST(Fp8Functions, RefuseTensorsOfOtherShapesAndFormats) {
  const NamedTensor w13 = tensor("w13", Format::kE4m3, {2, 6, 8});
  const auto scale = [](std::vector<std::uint64_t> shape) {
    return tensor("w13_scale", Format::kF32, std::move(shape));
  };
  EXPECT_TRUE(run("fp8-one-scale", {w13, scale({2, 2})}).has_value());
  EXPECT_TRUE(run("fp8-one-scale", {w13, scale({2, 1})}).has_value());
  EXPECT_FALSE(run("fp8-one-scale", {w13, scale({2, 3})}).has_value());
  EXPECT_FALSE(run("fp8-one-scale", {w13, scale({1, 2})}).has_value());
  EXPECT_FALSE(run("fp8-one-scale", {w13, scale({2, 0})}).has_value());
  const NamedTensor odd = tensor("w13", Format::kE4m3, {2, 5, 8});
  EXPECT_FALSE(run("fp8-one-scale", {odd, scale({2, 2})}).has_value());

  const NamedTensor weight = tensor("weight", Format::kE4m3, {2, 130, 130});
  const auto block = [&](std::vector<std::uint64_t> shape, Format format) {
    return run("ue8m0-requantise", {weight, tensor("weight_scale", format, std::move(shape))});
  };
  EXPECT_TRUE(block({2, 2, 2}, Format::kF32).has_value());
  EXPECT_TRUE(block({2, 2, 2}, Format::kE8m0).has_value());
  EXPECT_FALSE(block({2, 1, 2}, Format::kF32).has_value());
  EXPECT_FALSE(block({2, 2, 2}, Format::kI32).has_value());

  const NamedTensor words = tensor("bn_a", Format::kF32, {1, 3, 4});
  EXPECT_FALSE(run("deepgemm-scales", {words}).has_value());
  EXPECT_FALSE(run("deepgemm-scales", {words, tensor("a", Format::kF32, {1, 4, 4})}).has_value());
  EXPECT_FALSE(run("deepgemm-scales", {tensor("a", Format::kF32, {4})}).has_value());
}

TEST(Fp8Functions, MakeNothingOfNothingAndTakeNoTime) {
  const std::uint64_t huge = std::uint64_t{1} << 40;
  EXPECT_TRUE(run("deepgemm-scales", {tensor("a", Format::kF32, {0, huge, 4})}).has_value());
  EXPECT_TRUE(run("ue8m0-requantise", {tensor("weight", Format::kE4m3, {0, huge, 128}),
                                       tensor("weight_scale", Format::kF32, {0, huge / 128, 1})})
                  .has_value());
  EXPECT_TRUE(run("ue8m0-requantise", {tensor("weight", Format::kE4m3, {huge, 0, 128}),
                                       tensor("weight_scale", Format::kF32, {huge, 0, 1})})
                  .has_value());
  EXPECT_FALSE(run("online-mxfp4", {tensor("w", Format::kBf16, {0, huge, 32})}).has_value());
  EXPECT_FALSE(run("online-mxfp8", {tensor("x", Format::kBf16, {huge, 0})}).has_value());
}

TEST(Fp8Functions, RefuseParamsThatCannotBeMeant) {
  const Tensors dense{tensor("weight", Format::kE4m3, {4, 2}),
                      tensor("weight_scale", Format::kF32, {2})};
  const auto widths = [&](json::Array list) {
    return run("fp8-one-scale-dense", dense, json::object({{"logical_widths", std::move(list)}}));
  };
  EXPECT_TRUE(widths({2, 2}).has_value());
  EXPECT_FALSE(widths({2, 3}).has_value());
  EXPECT_FALSE(widths({4}).has_value());
  EXPECT_FALSE(widths({-2, 6}).has_value());
  const Tensors blocks{tensor("weight", Format::kE4m3, {4, 2}),
                       tensor("weight_scale", Format::kF32, {1, 1})};
  EXPECT_TRUE(run("ue8m0-requantise", blocks).has_value());
  for (const json::Array& block : {json::Array{0, 128}, json::Array{128}, json::Array{-1, 1}}) {
    EXPECT_FALSE(run("ue8m0-requantise", blocks, json::object({{"block", block}})).has_value());
  }
}

TEST(OnlineFunctions, RefuseNumbersThatAreNotFiniteAndOddRows) {
  NamedTensor bad = tensor("w", Format::kBf16, {1, 2, 32});
  EXPECT_TRUE(run("online-mxfp4", {bad}).has_value());
  bad.bytes[7] = std::byte{0x7F};
  bad.bytes[6] = std::byte{0x80};
  for (const std::string_view name : {"online-mxfp4", "online-nvfp4"}) {
    const auto got = run(name, {bad});
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Code::kInvalidSource);
  }
  for (const std::uint64_t k : {31U, 24U}) {
    const auto got = run("online-mxfp4", {tensor("w", Format::kBf16, {1, 2, k})});
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Code::kUnsupported);
  }
  EXPECT_FALSE(run("online-mxfp4", {tensor("w", Format::kF32, {1, 2, 32})}).has_value());
}

TEST(OnlineFunctions, Nvfp4HasAMultiplierForEachMatrix) {
  NamedTensor w = tensor("w", Format::kBf16, {2, 1, 16});
  w.bytes[1] = std::byte{0x40};       // 2
  w.bytes[32 + 1] = std::byte{0x41};  // 8
  const auto got = run("online-nvfp4", {w});
  ASSERT_TRUE(got.has_value());
  const NamedTensor* const scale_2 = find(*got, "scale_2");
  ASSERT_NE(scale_2, nullptr);
  EXPECT_FLOAT_EQ(formats::number_at(Format::kF32, scale_2->bytes, 0), 2.0F / 2688.0F);
  EXPECT_FLOAT_EQ(formats::number_at(Format::kF32, scale_2->bytes, 1), 8.0F / 2688.0F);
  EXPECT_EQ(find(*got, "w")->bytes[0], std::byte{0x07});  // 6 * 448 * 2 / 2688 = 2
}

}  // namespace
}  // namespace lode::targets
