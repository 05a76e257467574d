#include "lode/engine/engine_ways.h"

#include <algorithm>
#include <array>

#include "lode/base/bytes.h"

namespace lode::engine {
namespace {

using targets::Target;

enum class Step : std::uint8_t {
  kLists,           // a list of parts for each tensor, then a concatenation of each
  kPreallocated,    // an output of all experts, filled one by one
  kListsAndStacks,  // lists of both tensors, then a stack of the first
  kSecondLayer,     // both tensors beside what they are made of
  kSecondTensor,    // gate and up swapped through a copy
  kChunkedSwap,     // swapped in place, chunk by chunk; then scales swizzled
  kSwizzle,         // scales alone, one tensor after another
  kScales,          // scales alone, made beside what they are made of
  kOneExpert,       // in place, one expert at a time
  kOneMatrix,       // one expert's gate and up in 16 or 32 bits for a while
  kNothing,
  kOnline,  // the layer in 16 bits and its quantised copy
};

struct Row {
  Target target;
  std::string_view from;  // the beginning of it
  Step step;
  std::string_view when;
};

constexpr std::string_view kMarlinBefore = "before vLLM #47851";
constexpr std::string_view kMarlinSince = "since vLLM #47851";
constexpr std::string_view kSwapBefore = "before vLLM #46276";
constexpr std::string_view kSwapSince = "since vLLM #46276";

constexpr std::array<Row, 31> kRows{{
    {Target::kMarlin, "nvfp4", Step::kLists, kMarlinBefore},
    {Target::kMarlin, "nvfp4", Step::kPreallocated, kMarlinSince},
    {Target::kMarlin, "mxfp4", Step::kLists, kMarlinBefore},
    {Target::kMarlin, "mxfp4", Step::kPreallocated, kMarlinSince},
    {Target::kMarlin, "fp8", Step::kLists, ""},
    {Target::kMarlin, "mxfp8", Step::kLists, ""},
    {Target::kFlashinferCutlass, "nvfp4", Step::kSecondTensor, kSwapBefore},
    {Target::kFlashinferCutlass, "nvfp4", Step::kChunkedSwap, kSwapSince},
    {Target::kFlashinferCutlass, "mxfp4", Step::kSecondLayer, ""},
    {Target::kFlashinferCutlass, "fp8", Step::kSecondTensor, kSwapBefore},
    {Target::kFlashinferCutlass, "fp8", Step::kChunkedSwap, kSwapSince},
    {Target::kFlashinferCutlass, "bf16", Step::kSecondTensor, kSwapBefore},
    {Target::kFlashinferCutlass, "bf16", Step::kChunkedSwap, kSwapSince},
    {Target::kFlashinferB12x, "nvfp4", Step::kSecondTensor, kSwapBefore},
    {Target::kFlashinferB12x, "nvfp4", Step::kChunkedSwap, kSwapSince},
    {Target::kFlashinferB12x, "mxfp4", Step::kNothing, ""},
    {Target::kFlashinferTrtllm, "nvfp4", Step::kListsAndStacks, ""},
    {Target::kFlashinferTrtllm, "mxfp4", Step::kListsAndStacks, ""},
    {Target::kFlashinferTrtllm, "mxfp8", Step::kSecondLayer, ""},
    {Target::kFlashinferTrtllm, "fp8-tensor", Step::kListsAndStacks, ""},
    {Target::kFlashinferTrtllm, "fp8-block", Step::kListsAndStacks, "before vLLM #39054"},
    {Target::kFlashinferTrtllm, "fp8-block", Step::kSecondLayer, "since vLLM #39054"},
    {Target::kFlashinferTrtllm, "bf16", Step::kSecondLayer, "before vLLM #54699"},
    {Target::kFlashinferTrtllm, "bf16", Step::kOneExpert, "since vLLM #54699"},
    {Target::kVllmCutlass, "nvfp4", Step::kSwizzle, ""},
    {Target::kVllmCutlass, "mxfp4", Step::kSwizzle, ""},
    {Target::kVllmCutlass, "fp8-tensor", Step::kOneMatrix, ""},
    {Target::kVllmCutlass, "fp8-channel", Step::kNothing, ""},
    {Target::kVllmCutlass, "fp8-block", Step::kNothing, ""},
    {Target::kDeepgemm, "fp8-block", Step::kOneMatrix, ""},
    {Target::kDeepgemm, "mxfp4", Step::kScales, ""},
}};

// "w13_weight_scale", "w13_weight_scale_inv"; the scale of a whole matrix is another one.
bool is_scales(std::string_view tensor, std::string_view matrix) {
  return tensor.starts_with(matrix) && tensor.substr(matrix.size()).starts_with("_weight_scale") &&
         !tensor.ends_with("_2");
}

std::uint64_t per_expert(std::uint64_t bytes, const LayerWeights& weights) {
  return weights.num_experts == 0 ? 0 : bytes / weights.num_experts;
}

EngineWay swap(Step step, const LayerWeights& w) {
  const std::uint64_t scales = 2 * std::max(w.gate_up_scale_bytes, w.down_scale_bytes);
  if (!w.gated) return {"swizzle the scales", "", "2*max(S13,S2)", scales};
  if (step == Step::kSecondTensor) {
    return {"swap gate and up through a copy", "", "W13+S13",
            w.gate_up_bytes + w.gate_up_scale_bytes};
  }
  const std::uint64_t chunk = std::min(64 * kMiB, w.gate_up_bytes / 2);
  return {"swap gate and up in chunks, then swizzle the scales", "",
          "max(min(64 MiB, W13/2), 2*max(S13,S2))", std::max(chunk, scales)};
}

EngineWay lists(Step step, const LayerWeights& w) {
  if (step == Step::kLists) {
    return {"list and concatenate", "", "max(2*W13, W13+2*W2)",
            std::max(2 * w.gate_up_bytes, w.gate_up_bytes + 2 * w.down_bytes)};
  }
  return {"lists and stacks", "", "at least 2*W13+W2", 2 * w.gate_up_bytes + w.down_bytes};
}

EngineWay way_of(Step step, const LayerWeights& w) {
  const std::uint64_t both = w.gate_up_bytes + w.down_bytes;
  const std::uint64_t scales = std::max(w.gate_up_scale_bytes, w.down_scale_bytes);
  switch (step) {
    case Step::kLists:
    case Step::kListsAndStacks:
      return lists(step, w);
    case Step::kPreallocated:
      return {"fill a second layer", "", "W13+W2 and two experts", both + 2 * per_expert(both, w)};
    case Step::kSecondLayer:
      return {"make a second layer", "", "at least W13+W2", both};
    case Step::kSecondTensor:
    case Step::kChunkedSwap:
      return swap(step, w);
    case Step::kSwizzle:
      return {"swizzle the scales", "", "2*max(S13,S2)", 2 * scales};
    case Step::kScales:
      return {"make other scales", "", "at least max(S13,S2)", scales};
    case Step::kOneExpert:
      return {"in place", "", "one expert", per_expert(both, w)};
    case Step::kOneMatrix:
      return {"quantise again", "", "at least one half of one expert in 16 bits",
              per_expert(w.gate_up_bytes, w)};
    case Step::kNothing:
      return {"leave weights as they are", "", "0", 0};
    case Step::kOnline:
      return {"quantise the whole layer", "", "layer in 16 bits and W13+W2",
              w.unquantised_bytes + both};
  }
  return {};
}

}  // namespace

LayerWeights layer_weights(const loader::EngineBankPlan& bank, const loader::EngineChoice& choice) {
  const targets::ExpertsShape& shape = bank.shape;
  LayerWeights weights{.num_experts = shape.num_experts, .gated = shape.gated};
  for (const targets::EngineTensor& tensor : bank.tensors()) {
    const std::uint64_t bytes = tensor.bytes(shape.num_experts);
    if (tensor.name == "w13_weight") weights.gate_up_bytes = bytes;
    if (tensor.name == "w2_weight") weights.down_bytes = bytes;
    if (is_scales(tensor.name, "w13")) weights.gate_up_scale_bytes = bytes;
    if (is_scales(tensor.name, "w2")) weights.down_scale_bytes = bytes;
  }
  if (!choice.options.online.empty()) {
    constexpr std::uint64_t kBytesOfA16BitNumber = 2;
    weights.unquantised_bytes = shape.num_experts * (shape.num_halves() + std::uint64_t{1}) *
                                shape.intermediate * shape.hidden * kBytesOfA16BitNumber;
  }
  return weights;
}

std::string_view route_from(const loader::EngineBankPlan& bank,
                            const loader::EngineChoice& choice) {
  if (!choice.options.online.empty()) return choice.options.online;
  for (const targets::Route& route : targets::route_table()) {
    if (route.target == choice.target && route.takes(bank.shape.encoding)) return route.from;
  }
  return "";
}

std::vector<EngineWay> engine_ways(Target target, std::string_view from,
                                   const LayerWeights& weights) {
  std::vector<EngineWay> ways;
  if (weights.unquantised_bytes > 0) ways.push_back(way_of(Step::kOnline, weights));
  for (const Row& row : kRows) {
    if (row.target != target || from.empty() || !from.starts_with(row.from)) continue;
    EngineWay way = way_of(row.step, weights);
    way.when = row.when;
    ways.push_back(way);
  }
  return ways;
}

}  // namespace lode::engine
