#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lode/targets/function_values.h"
#include "lode/targets/test_golden_functions.h"

namespace lode::targets {
namespace {

using formats::Format;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FlashinferFunctions, MakeWhatTheEnginesCodeComputedInEveryWay) {
  EXPECT_EQ(testing::check_cases(flashinfer_functions()), 37U);
}

TEST(FlashinferParts, MakeWhatTheEnginesCodeComputedInEveryWay) {
  EXPECT_EQ(testing::check_cases(flashinfer_part_functions()), 6U);
}

// The engines' release of that time padded behind both halves: the border between them moved.
TEST(FlashinferFunctions, PadEachHalfWhereUpstreamPaddedTheEnd) {
  const json::Value manifest = testing::read_manifest();
  std::size_t count = 0;
  for (const json::Value& one : *manifest.find("cases")->as_array()) {
    const Function* const function = function_by_name(testing::text_of(one, "function"));
    if (one.find("upstream_defect") == nullptr || function == nullptr) continue;
    ++count;
    const auto inputs = testing::tensors_of(one, "inputs");
    const auto upstream = testing::tensors_of(one, "outputs");
    const auto outputs = function->run({inputs, *one.find("params"), Way::kOutOfPlace});
    ASSERT_TRUE(outputs) << to_string(outputs.error());
    EXPECT_EQ(find(*outputs, "w13")->bytes, find(upstream, "right_w13")->bytes);
    EXPECT_EQ(find(*outputs, "w13")->bytes, find(*outputs, "right_w13")->bytes);
    EXPECT_NE(find(*outputs, "w13")->bytes, find(upstream, "w13")->bytes);
  }
  EXPECT_EQ(count, 2U);
}

NamedTensor zeros(std::string_view name, Format dtype, std::vector<std::uint64_t> shape) {
  auto made = make_tensor(name, dtype, std::move(shape));
  EXPECT_TRUE(made);
  return *std::move(made);
}

/// Tensors of NVFP4 experts, K = 64, N = 64.
std::vector<NamedTensor> nvfp4_tensors() {
  return {
      zeros("w13", Format::kU8, {2, 128, 32}),      zeros("w13_scale", Format::kE4m3, {2, 128, 4}),
      zeros("w13_scale_2", Format::kF32, {2}),      zeros("w2", Format::kU8, {2, 64, 32}),
      zeros("w2_scale", Format::kE4m3, {2, 64, 4}), zeros("w2_scale_2", Format::kF32, {2}),
      zeros("a13_scale", Format::kF32, {2, 2}),     zeros("a2_scale", Format::kF32, {2})};
}

std::string fault(std::string_view function, std::span<const NamedTensor> inputs,
                  const json::Value& params) {
  const Function* const found = function_by_name(function);
  EXPECT_NE(found, nullptr) << function;
  if (found == nullptr) return {};
  const auto outputs = found->run({inputs, params, Way::kOutOfPlace});
  return outputs ? "" : to_string(outputs.error());
}

const json::Value kCutlass = json::object({{"backend", "FLASHINFER_CUTLASS"}});

TEST(FlashinferFunctions, NameTheTensorThatIsMissingOrMisshapen) {
  EXPECT_EQ(fault("nvfp4-flashinfer", nvfp4_tensors(), kCutlass), "");
  for (std::size_t missing = 0; missing < nvfp4_tensors().size(); ++missing) {
    std::vector<NamedTensor> inputs = nvfp4_tensors();
    const std::string name = inputs[missing].name;
    inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_THAT(fault("nvfp4-flashinfer", inputs, kCutlass), HasSubstr("tensor " + name));
  }
  for (std::size_t odd = 0; odd < nvfp4_tensors().size(); ++odd) {
    std::vector<NamedTensor> inputs = nvfp4_tensors();
    inputs[odd] = zeros(inputs[odd].name, inputs[odd].dtype, {3, 6});
    EXPECT_THAT(fault("nvfp4-flashinfer", inputs, kCutlass),
                HasSubstr("tensor " + inputs[odd].name));
  }
  std::vector<NamedTensor> inputs = nvfp4_tensors();
  inputs[0] = zeros("w13", Format::kU8, {2, 127, 32});
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs, kCutlass), HasSubstr("even number of rows"));
  inputs[0] = zeros("w13", Format::kU8, {0, 128, 32});
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs, kCutlass), HasSubstr("rows and columns"));
  inputs[0] = zeros("w13", Format::kBf16, {2, 128, 32});
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs, kCutlass), HasSubstr("tensor w13"));
}

TEST(FlashinferFunctions, NameTheParamThatIsNone) {
  const auto inputs = nvfp4_tensors();
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs, json::object({})), HasSubstr("param backend"));
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs, json::object({{"backend", "TRITON"}})),
              AllOf(HasSubstr("VLLM_CUTLASS"), HasSubstr("found TRITON")));
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs,
                    json::object({{"backend", "FLASHINFER_TRTLLM"}, {"hidden_out", 32}})),
              HasSubstr("hidden size"));
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs,
                    json::object({{"backend", "FLASHINFER_TRTLLM"}, {"hidden_out", 100}})),
              HasSubstr("hidden size, padded"));
  EXPECT_THAT(fault("nvfp4-flashinfer", inputs,
                    json::object({{"backend", "FLASHINFER_CUTLASS"}, {"gated", "yes"}})),
              HasSubstr("param gated"));
  const std::vector<NamedTensor> mxfp4{
      zeros("w13", Format::kU8, {1, 256, 64}), zeros("w2", Format::kU8, {1, 128, 64}),
      zeros("w13_scale", Format::kU8, {1, 256, 4}), zeros("w2_scale", Format::kU8, {1, 128, 4})};
  EXPECT_THAT(fault("mxfp4-standard", mxfp4,
                    json::object({{"backend", "FLASHINFER_CUTLASS_MXFP4_BF16"},
                                  {"flashinfer_layout", "0.5"}})),
              HasSubstr("flashinfer_layout"));
  EXPECT_THAT(fault("mxfp4-standard", mxfp4, json::object({{"backend", "TRITON"}})),
              HasSubstr("param backend"));
  const std::vector<NamedTensor> fp8{
      zeros("w13", Format::kE4m3, {1, 256, 128}), zeros("w2", Format::kE4m3, {1, 128, 128}),
      zeros("w13_scale", Format::kF32, {1, 2, 1}), zeros("w2_scale", Format::kF32, {1, 1, 1})};
  EXPECT_EQ(fault("fp8-block-flashinfer", fp8, json::object({})), "");
  EXPECT_THAT(fault("fp8-block-flashinfer", fp8, json::object({{"block", json::Array{128}}})),
              HasSubstr("param block"));
  EXPECT_THAT(fault("fp8-block-flashinfer", fp8, json::object({{"block", json::Array{128, 0}}})),
              HasSubstr("param block"));
}

TEST(FlashinferParts, RefuseTensorsOfOtherShapes) {
  const json::Value none = json::object({});
  const auto one = [&](std::string_view function, NamedTensor tensor) {
    const std::vector<NamedTensor> inputs{std::move(tensor)};
    return fault(function, inputs, none);
  };
  EXPECT_THAT(one("half-swap", zeros("w13", Format::kU8, {2, 5, 4})), HasSubstr("w13"));
  EXPECT_THAT(one("half-swap", zeros("w13", Format::kU8, {10, 4})), HasSubstr("w13"));
  EXPECT_THAT(one("scales-128x4", zeros("a", Format::kF32, {4, 4})), HasSubstr("tensor a"));
  EXPECT_THAT(one("scales-128x4", zeros("a", Format::kU8, {4})), HasSubstr("tensor a"));
  EXPECT_THAT(one("scales-128x4", zeros("a", Format::kU8, {4, 0})), HasSubstr("tensor a"));
  EXPECT_THAT(one("trtllm-shuffles", zeros("w", Format::kU8, {60, 128})), HasSubstr("tensor w"));
  EXPECT_THAT(one("trtllm-shuffles", zeros("w", Format::kU8, {64, 100})), HasSubstr("tensor w"));
  EXPECT_THAT(one("trtllm-shuffles", zeros("w", Format::kU8, {})), HasSubstr("tensor w"));
  EXPECT_THAT(one("trtllm-shuffles", zeros("sf", Format::kU8, {32, 4})), HasSubstr("tensor sf"));
  EXPECT_THAT(one("trtllm-row-maps", zeros("m", Format::kI32, {1})), HasSubstr("tensor m"));
  EXPECT_THAT(one("nvfp4-scalars", zeros("a2", Format::kF32, {0})), HasSubstr("tensor a2"));
  EXPECT_THAT(one("mxfp4-sizes", zeros("hn", Format::kI32, {3})), HasSubstr("tensor hn"));
}

}  // namespace
}  // namespace lode::targets
