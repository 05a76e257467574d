// What the Marlin functions refuse: tensors out of files and params may be anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/functions_marlin.h"

namespace lode::targets {
namespace {

using formats::Format;
using Tensors = std::vector<NamedTensor>;

NamedTensor tensor(std::string name, Format dtype, std::vector<std::uint64_t> shape,
                   std::uint8_t byte = 1) {
  std::uint64_t bits = formats::info(dtype).bits;
  for (const std::uint64_t extent : shape) bits *= extent;
  return {std::move(name), dtype, std::move(shape),
          std::vector<std::byte>(bits / 8, static_cast<std::byte>(byte))};
}

NamedTensor words(std::string name, std::vector<std::uint64_t> shape,
                  const std::vector<std::int32_t>& numbers) {
  NamedTensor made = tensor(std::move(name), Format::kI32, std::move(shape));
  EXPECT_EQ(made.bytes.size(), numbers.size() * sizeof(std::int32_t));
  std::ranges::copy(std::as_bytes(std::span(numbers)), made.bytes.begin());
  return made;
}

// Runs a function on `tensors`, each of which may stand in for one of the same name in `good`.
struct Bench {
  std::string_view function;
  Tensors good;
  json::Value params;

  Result<Tensors> run(const Tensors& changes = {}, const json::Value& with = nullptr) const {
    Tensors inputs = good;
    for (const NamedTensor& change : changes) {
      const auto place = std::ranges::find(inputs, change.name, &NamedTensor::name);
      if (place == inputs.end()) {
        inputs.push_back(change);
      } else {
        *place = change;
      }
    }
    const Function* const found = function_by_name(function);
    EXPECT_NE(found, nullptr) << function;
    return found->run({inputs, with.is_null() ? params : with, Way::kOutOfPlace});
  }
  void refuses(Code code, const std::string& text, const Tensors& changes,
               const json::Value& with = nullptr) const {
    const auto made = run(changes, with);
    ASSERT_FALSE(made) << function << ": " << text;
    EXPECT_EQ(made.error().code, code) << to_string(made.error());
    EXPECT_NE(to_string(made.error()).find(text), std::string::npos) << to_string(made.error());
  }
  void takes(const Tensors& changes = {}, const json::Value& with = nullptr) const {
    const auto made = run(changes, with);
    EXPECT_TRUE(made) << function << ": " << to_string(made.error());
  }
};

std::vector<std::int32_t> rising(std::int32_t count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.rbegin(), numbers.rend(), 0);
  return numbers;
}

TEST(MarlinFunctionsRefuse, WhatCannotBeRepacked) {
  const Bench repack{"marlin-repack",
                     {tensor("b_q_weight", Format::kI32, {4, 64})},
                     json::object({{"num_bits", 4}})};
  repack.takes();
  repack.takes({words("perm", {32}, rising(32))});
  repack.takes({words("perm", {0}, {})});
  repack.refuses(Code::kUsage, "num_bits", {}, json::object({{"num_bits", 3}}));
  repack.refuses(Code::kUsage, "num_bits", {}, json::object({}));
  repack.refuses(Code::kInvalidSource, "b_q_weight", {tensor("b_q_weight", Format::kI32, {256})});
  repack.refuses(Code::kInvalidSource, "b_q_weight", {tensor("b_q_weight", Format::kF32, {4, 64})});
  repack.refuses(Code::kUnsupported, "multiple of 64",
                 {tensor("b_q_weight", Format::kI32, {4, 96})});
  repack.refuses(Code::kUnsupported, "multiple of 16",
                 {tensor("b_q_weight", Format::kI32, {3, 64})});
  repack.refuses(Code::kUnsupported, "rows", {tensor("b_q_weight", Format::kI32, {4, 0})});
  repack.refuses(Code::kInvalidSource, "perm", {words("perm", {16}, rising(16))});
  std::vector<std::int32_t> far = rising(32);
  far[7] = 32;
  repack.refuses(Code::kInvalidSource, "32", {words("perm", {32}, far)});
  far[7] = -1;
  repack.refuses(Code::kInvalidSource, "-1", {words("perm", {32}, far)});
  repack.refuses(Code::kUnsupported, "act-order", {words("perm", {32}, rising(32))},
                 json::object({{"num_bits", 4}, {"is_a_8bit", true}}));
}

TEST(MarlinFunctionsRefuse, ViewsAndScalesOfOtherShapes) {
  const Bench view{"marlin-gptq-view", {}, json::object({})};
  view.refuses(Code::kInvalidSource, "fp4", {tensor("fp4", Format::kF32, {64, 8})});
  view.refuses(Code::kUnsupported, "whole words", {tensor("fp4", Format::kU8, {64, 6})});
  view.refuses(Code::kUnsupported, "whole words", {tensor("fp4", Format::kU8, {0, 8})});
  const Bench turn{"marlin-permute-scales", {}, json::object({{"size_k", 64}})};
  turn.takes({tensor("grouped16", Format::kBf16, {4, 64})});
  turn.refuses(Code::kUnsupported, "multiple of 64", {tensor("grouped16", Format::kBf16, {4, 40})});
  turn.refuses(Code::kUnsupported, "multiple of 32", {tensor("bias", Format::kBf16, {40})});
  turn.refuses(Code::kInvalidSource, "whole bytes", {tensor("bias", Format::kE2m1, {64})});
  const Bench nvfp4{"marlin-nvfp4-scales", {}, json::object({{"param_dtype", "bf16"}})};
  nvfp4.takes({tensor("codes", Format::kE4m3, {1, 8})});
  nvfp4.refuses(Code::kInvalidSource, "codes", {tensor("codes", Format::kF32, {1, 8})});
  nvfp4.refuses(Code::kInvalidSource, "multiple of four", {tensor("codes", Format::kU8, {1, 6})});
  nvfp4.refuses(Code::kUsage, "param_dtype", {}, json::object({{"param_dtype", "fp32"}}));
  const Bench global{"marlin-nvfp4-global-scale", {}, json::object({{"a_dtype", "fp16"}})};
  global.refuses(Code::kInvalidSource, "global_scale", {});
  global.refuses(Code::kInvalidSource, "F32", {tensor("global_scale", Format::kBf16, {1})});
  global.takes({tensor("global_scale", Format::kF32, {0})});
  const Bench mx{"marlin-mx-scales", {}, json::object({{"param_dtype", "bf16"}})};
  mx.refuses(Code::kInvalidSource, "bytes", {});
  mx.refuses(Code::kUnsupported, "250", {tensor("bytes_a8", Format::kU8, {1, 8}, 250)});
  mx.takes({tensor("bytes_a8", Format::kU8, {1, 8}, 249)});
  const Bench sizes{"marlin-padded-sizes", {}, json::object({})};
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  sizes.refuses(Code::kUnsupported, "sizes", {words("nkg", {1, 3}, {most, 64, -1})});
  sizes.takes({words("nkg", {0, 3}, {})});
  sizes.refuses(Code::kInvalidSource, "nkg", {words("nkg", {1, 2}, {64, 64})});
}

Bench nvfp4_experts() {
  return {"marlin-nvfp4-experts",
          {tensor("w13", Format::kU8, {2, 128, 64}), tensor("w2", Format::kU8, {2, 128, 32}),
           tensor("w13_scale", Format::kE4m3, {2, 128, 8}, 0x38),
           tensor("w2_scale", Format::kE4m3, {2, 128, 4}, 0x38),
           tensor("w13_scale_2", Format::kF32, {2}), tensor("w2_scale_2", Format::kF32, {2})},
          json::object({{"param_dtype", "bf16"}})};
}

TEST(MarlinFunctionsRefuse, Nvfp4ExpertsThatDoNotFitTogether) {
  const Bench experts = nvfp4_experts();
  experts.takes();
  experts.takes({tensor("w13_scale_2", Format::kF32, {2, 2})});
  const auto refuses = [&](const std::string& text, const NamedTensor& change) {
    experts.refuses(Code::kInvalidSource, text, {change});
  };
  refuses("w13", tensor("w13", Format::kU8, {2, 100, 64}));
  refuses("w13", tensor("w13", Format::kU8, {2, 128, 32}));
  refuses("w13", tensor("w13", Format::kU8, {3, 128, 64}));
  refuses("w13", tensor("w13", Format::kBf16, {2, 128, 64}));
  refuses("w2", tensor("w2", Format::kU8, {128, 32}));
  refuses("w2", tensor("w2", Format::kU8, {0, std::uint64_t{1} << 40, std::uint64_t{1} << 40}));
  refuses("w13_scale", tensor("w13_scale", Format::kE4m3, {2, 128, 4}));
  refuses("w13_scale", tensor("w13_scale", Format::kF32, {2, 128, 8}));
  refuses("w2_scale", tensor("w2_scale", Format::kE4m3, {2, 64, 4}));
  refuses("w13_scale_2", tensor("w13_scale_2", Format::kF32, {2, 3}));
  refuses("w13_scale_2", tensor("w13_scale_2", Format::kBf16, {2}));
  refuses("w2_scale_2", tensor("w2_scale_2", Format::kF32, {3}));
  refuses("w13_bias", tensor("w13_bias", Format::kBf16, {2, 64}));
  experts.refuses(Code::kInvalidSource, "w2_bias", {tensor("w13_bias", Format::kBf16, {2, 128})});
}

TEST(MarlinFunctionsRefuse, ActivationsThatTheKernelsDoNotHave) {
  Bench experts = nvfp4_experts();
  experts.function = "marlin-fp4-experts";
  for (NamedTensor& input : experts.good) {
    input.name.insert(input.name.find_first_of("32") + 1, "_weight");
  }
  experts.takes();
  const auto dtype = [](const char* name) { return json::object({{"input_dtype", name}}); };
  experts.refuses(Code::kUnsupported, "8-bit activations", {}, dtype("fp8"));
  experts.refuses(Code::kUnsupported, "int8", {}, dtype("int8"));
  const Bench mxfp4{
      "marlin-mxfp4-experts",
      {tensor("w13", Format::kU8, {1, 128, 32}), tensor("w2", Format::kU8, {1, 64, 32}),
       tensor("w13_scale", Format::kU8, {1, 128, 2}, 0x7F),
       tensor("w2_scale", Format::kU8, {1, 64, 2}, 0x7F)},
      dtype("fp8")};
  mxfp4.takes();
  mxfp4.refuses(Code::kUnsupported, "at most 249",
                {tensor("w2_scale", Format::kU8, {1, 64, 2}, 0xFF)});
  mxfp4.takes({tensor("w2_scale", Format::kU8, {1, 64, 2}, 0xFF)}, json::object({}));
}

TEST(MarlinFunctionsRefuse, Fp8ScalesOfAnotherNumber) {
  const Bench experts{
      "marlin-fp8-experts",
      {tensor("w13", Format::kE4m3, {2, 128, 64}), tensor("w2", Format::kE4m3, {2, 64, 64}),
       tensor("w13_scale", Format::kF32, {2}), tensor("w2_scale", Format::kF32, {2})},
      json::object({{"orig_dtype", "bf16"}})};
  experts.takes();
  experts.takes({tensor("w13_scale", Format::kBf16, {2, 4})});  // equal shards
  experts.refuses(Code::kInvalidSource, "w13_scale", {tensor("w13_scale", Format::kF32, {3})});
  experts.refuses(Code::kInvalidSource, "w13_scale", {tensor("w13_scale", Format::kF32, {2, 3})});
  experts.refuses(Code::kInvalidSource, "w13_scale", {tensor("w13_scale", Format::kF32, {0})});
  experts.refuses(Code::kInvalidSource, "w13_scale", {tensor("w13_scale", Format::kI32, {2})});
  const auto block = [](json::Array sizes) {
    return json::object({{"block", json::Value(std::move(sizes))}});
  };
  experts.refuses(Code::kInvalidSource, "blocks", {}, block({64, 64}));
  experts.refuses(Code::kUsage, "block", {}, block({64}));
  experts.refuses(Code::kUsage, "block", {}, block({0, 64}));
  const NamedTensor scales[] = {tensor("w13_scale", Format::kF32, {2, 4, 2}),
                                tensor("w2_scale", Format::kF32, {2, 2, 2})};
  experts.takes({scales[0], scales[1]}, block({32, 32}));
  experts.refuses(Code::kUnsupported, "whole groups of 48", {scales[0], scales[1]},
                  block({32, 48}));
}

TEST(MarlinFunctionsRefuse, DenseLayersThatDoNotFitTogether) {
  const Bench fp4{"marlin-fp4-dense",
                  {tensor("weight", Format::kU8, {64, 64}),
                   tensor("weight_scale", Format::kE4m3, {64, 8}, 0x38),
                   tensor("weight_global_scale", Format::kF32, {1})},
                  json::object({{"param_dtype", "bf16"}})};
  fp4.takes();
  fp4.refuses(Code::kInvalidSource, "weight", {tensor("weight", Format::kU8, {0, 64})});
  fp4.refuses(Code::kInvalidSource, "weight_scale", {tensor("weight_scale", Format::kU8, {64, 4})});
  fp4.refuses(Code::kInvalidSource, "one F32", {tensor("weight_global_scale", Format::kF32, {2})});
  fp4.refuses(Code::kInvalidSource, "bias", {tensor("bias", Format::kBf16, {32})});
  const Bench fp8{
      "marlin-fp8-dense",
      {tensor("weight", Format::kE4m3, {128, 64}), tensor("weight_scale", Format::kF32, {3})},
      json::object({{"logical_widths", json::Value(json::Array{64, 32, 32})}})};
  fp8.takes();
  const auto widths = [](json::Array list) {
    return json::object({{"logical_widths", json::Value(std::move(list))}});
  };
  fp8.refuses(Code::kInvalidSource, "weight_scale", {}, widths({64, 32, 16}));
  fp8.refuses(Code::kInvalidSource, "weight_scale", {}, widths({64, 32, 64}));
  fp8.refuses(Code::kInvalidSource, "weight_scale", {}, json::object({}));
  fp8.refuses(Code::kInvalidSource, "weight", {tensor("weight", Format::kE4m3, {0, 64})});
}

}  // namespace
}  // namespace lode::targets
