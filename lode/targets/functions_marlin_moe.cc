// Layers of experts for the Marlin kernels, as the engines' preparers are called: NVFP4, MXFP4,
// FP8 and MXFP8, one preparer behind all of them.
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/functions_marlin.h"
#include "lode/targets/marlin.h"
#include "lode/targets/prepare_layer.h"

namespace lode::targets {
namespace {

using formats::Encoding;
using formats::Format;
using Tensors = std::vector<NamedTensor>;

// What a function calls its tensors behind "w13" and "w2".
struct Names {
  std::string_view weight;
  std::string_view scale;
  std::string_view matrix_scale;
};
constexpr Names kShort{"", "_scale", "_scale_2"};
constexpr Names kLong{"_weight", "_weight_scale", "_weight_scale_2"};

struct Layer {
  ExpertsShape shape;
  LayerTensors tensors;
  LayerScalars scalars;
};

std::string join(std::string_view matrix, std::string_view suffix) {
  return fmt::format("{}{}", matrix, suffix);
}

// What has no bytes could have any extents.
Error no_experts(const NamedTensor& tensor) {
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("tensor {}", tensor.name),
               .wanted = "experts",
               .found = describe(tensor)};
}

// Sizes from the weights themselves: w13 [E, halves * N, K], w2 [E, K, N].
Result<Layer> read_weights(const Request& request, const Names& names, const Encoding& encoding) {
  const std::uint64_t per_byte = 8 / formats::info(encoding.element).bits;
  const std::initializer_list<Format> dtypes{Format::kU8, encoding.element};
  LODE_TRY(const NamedTensor* const down, want(request.inputs, join("w2", names.weight), dtypes,
                                               {kAnyExtent, kAnyExtent, kAnyExtent}));
  if (down->bytes.empty()) return no_experts(*down);
  const std::uint64_t packed = down->dtype == Format::kE2m1 ? 1 : per_byte;
  Layer layer;
  layer.shape.num_experts = down->shape[0];
  layer.shape.hidden = down->shape[1];
  layer.shape.intermediate = down->shape[2] * packed;
  layer.shape.encoding = encoding;
  layer.shape.scale_format = encoding.scale;
  LODE_TRY(const NamedTensor* const gate_up,
           want(request.inputs, join("w13", names.weight), dtypes,
                {layer.shape.num_experts, kAnyExtent, kAnyExtent}));
  const std::uint64_t k = gate_up->shape[2] * (gate_up->dtype == Format::kE2m1 ? 1 : per_byte);
  layer.shape.gated = gate_up->shape[1] == 2 * layer.shape.intermediate;
  if (k != layer.shape.hidden ||
      gate_up->shape[1] != layer.shape.num_halves() * layer.shape.intermediate) {
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", gate_up->name),
                 .wanted = fmt::format("{} or twice as many rows of {} numbers",
                                       layer.shape.intermediate, layer.shape.hidden),
                 .found = describe(*gate_up)};
  }
  const Params params(request.params);
  LODE_TRY_STATUS(check_layer_facts(
      params, {layer.shape.num_experts, layer.shape.hidden, layer.shape.intermediate}));
  LODE_TRY_STATUS(params.agree("gated", json::Value(layer.shape.gated)));
  layer.tensors[LayerPart::kGateUp] = gate_up->bytes;
  layer.tensors[LayerPart::kDown] = down->bytes;
  return layer;
}

// Block scales of one byte.
Status read_block_scales(const Request& request, const Names& names, bool narrow, Layer& layer) {
  const ExpertsShape& shape = layer.shape;
  LODE_TRY_STATUS(Params(request.params)
                      .agree("group_size", json::Value(std::uint64_t{shape.encoding.block_k})));
  const std::uint64_t rows = shape.num_halves() * shape.intermediate;
  const std::initializer_list<Format> dtypes{Format::kU8, shape.encoding.scale};
  LODE_TRY(const NamedTensor* const gate_up,
           want(request.inputs, join("w13", names.scale), dtypes,
                {shape.num_experts, rows, formats::scale_columns(shape.encoding, shape.hidden)}));
  LODE_TRY(const NamedTensor* const down,
           want(request.inputs, join("w2", names.scale), dtypes,
                {shape.num_experts, shape.hidden,
                 formats::scale_columns(shape.encoding, shape.intermediate)}));
  if (narrow) {
    LODE_TRY_STATUS(check_room_for_six(*gate_up));
    LODE_TRY_STATUS(check_room_for_six(*down));
  }
  layer.tensors[LayerPart::kGateUpScales] = gate_up->bytes;
  layer.tensors[LayerPart::kDownScales] = down->bytes;
  return {};
}

// One number each of `count` an expert; number `which`.
std::vector<float> every_nth(const NamedTensor& tensor, std::uint64_t count, std::uint64_t which) {
  std::vector<float> numbers;
  for (std::uint64_t at = which; at < tensor.bytes.size() / sizeof(float); at += count) {
    numbers.push_back(formats::number_at(Format::kF32, tensor.bytes, at));
  }
  return numbers;
}

// Scales of the matrices, [E] or of w13 [E, 2] for gate and up.
Status read_matrix_scales(const Request& request, const Names& names, Layer& layer) {
  const std::uint64_t experts = layer.shape.num_experts;
  LODE_TRY(const NamedTensor* const gate_up, want(request.inputs, join("w13", names.matrix_scale)));
  const std::uint64_t each = gate_up->shape.size() == 2 ? layer.shape.num_halves() : 1;
  const auto right = gate_up->shape.size() == 2
                         ? want(request.inputs, gate_up->name, {Format::kF32}, {experts, each})
                         : want(request.inputs, gate_up->name, {Format::kF32}, {experts});
  if (!right) return right.error();
  LODE_TRY(const NamedTensor* const down,
           want(request.inputs, join("w2", names.matrix_scale), {Format::kF32}, {experts}));
  layer.scalars.gate_scale = every_nth(*gate_up, each, 0);
  layer.scalars.up_scale = every_nth(*gate_up, each, each - 1);
  layer.scalars.down_scale = every_nth(*down, 1, 0);
  return {};
}

// As f32, in which BF16 and F16 are exact: the two may be stored in different formats.
std::vector<std::byte> widened(const NamedTensor& bias) {
  const std::uint64_t count = bias.bytes.size() * 8 / formats::info(bias.dtype).bits;
  std::vector<std::byte> all(count * sizeof(float));
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = formats::number_at(bias.dtype, bias.bytes, i);
    std::memcpy(all.data() + i * sizeof(value), &value, sizeof(value));
  }
  return all;
}

Status read_biases(const Request& request, Layer& layer) {
  if (find(request.inputs, "w13_bias") == nullptr) return {};
  const std::initializer_list<Format> dtypes{Format::kF32, Format::kBf16, Format::kF16};
  LODE_TRY(const NamedTensor* const gate_up,
           want(request.inputs, "w13_bias", dtypes,
                {layer.shape.num_experts, layer.shape.num_halves() * layer.shape.intermediate}));
  LODE_TRY(const NamedTensor* const down,
           want(request.inputs, "w2_bias", dtypes, {layer.shape.num_experts, layer.shape.hidden}));
  layer.shape.bias = true;
  layer.shape.bias_format = Format::kF32;
  layer.tensors[LayerPart::kGateUpBias] = widened(*gate_up);
  layer.tensors[LayerPart::kDownBias] = widened(*down);
  return {};
}

// "w13_weight_scale_inv" to what the function calls it: "w13_scale".
std::string renamed(std::string name, const Names& names) {
  const auto drop = [&](std::string_view part) {
    const std::size_t at = name.find(part);
    if (at != std::string::npos) name.erase(at, part.size());
  };
  if (names.weight.empty()) drop("_weight");
  drop("_inv");
  return name;
}

Result<Tensors> prepared(const Request& request, const Names& names, MarlinExperts experts,
                         Layer layer) {
  experts.shape = layer.shape;
  LODE_TRY(const std::unique_ptr<Preparer> preparer, make_marlin_preparer(experts));
  LODE_TRY(Tensors made, prepare_layer(*preparer, layer.shape, std::move(layer.tensors),
                                       std::move(layer.scalars), {.way = request.way}));
  for (NamedTensor& tensor : made) tensor.name = renamed(std::move(tensor.name), names);
  return made;
}

MarlinExperts as_they_are(const ExpertsShape& shape, bool narrow) {
  return {shape, shape.hidden, shape.intermediate, narrow};
}

Result<Layer> read_fp4(const Request& request, const Names& names, const Encoding& encoding,
                       bool narrow) {
  LODE_TRY(Layer layer, read_weights(request, names, encoding));
  LODE_TRY(layer.shape.model_format, activations_param(Params(request.params), "param_dtype"));
  LODE_TRY_STATUS(read_block_scales(request, names, narrow, layer));
  LODE_TRY_STATUS(read_biases(request, layer));
  return layer;
}

Result<Tensors> nvfp4_layer(const Request& request) {
  LODE_TRY(Layer layer, read_fp4(request, kShort, formats::kNvfp4, false));
  LODE_TRY_STATUS(read_matrix_scales(request, kShort, layer));
  LODE_TRY(const MarlinExperts experts, marlin_experts(layer.shape, false));
  return prepared(request, kShort, experts, std::move(layer));
}

Result<Tensors> fp4_layer(const Request& request) {
  const bool nvfp4 = find(request.inputs, "w13_weight_scale_2") != nullptr;
  const Params params(request.params);
  LODE_TRY_STATUS(params.agree("kind", nvfp4 ? "nvfp4" : "mxfp4"));
  LODE_TRY(const bool narrow, narrow_activations_param(params));
  LODE_TRY(Layer layer,
           read_fp4(request, kLong, nvfp4 ? formats::kNvfp4 : formats::kMxfp4, narrow && !nvfp4));
  if (nvfp4) LODE_TRY_STATUS(read_matrix_scales(request, kLong, layer));
  const MarlinExperts experts = as_they_are(layer.shape, narrow);
  return prepared(request, kLong, experts, std::move(layer));
}

Result<Tensors> mxfp4_layer(const Request& request) {
  LODE_TRY(const bool narrow, narrow_activations_param(Params(request.params)));
  LODE_TRY(Layer layer, read_fp4(request, kShort, formats::kMxfp4, narrow));
  const MarlinExperts experts = as_they_are(layer.shape, narrow);
  return prepared(request, kShort, experts, std::move(layer));
}

Result<Tensors> mxfp8_layer(const Request& request) {
  LODE_TRY(Layer layer, read_weights(request, kShort, formats::kMxfp8));
  LODE_TRY(layer.shape.model_format, activations_param(Params(request.params), "default_dtype"));
  LODE_TRY_STATUS(read_block_scales(request, kShort, false, layer));
  LODE_TRY(const MarlinExperts experts, marlin_experts(layer.shape, false));
  return prepared(request, kShort, experts, std::move(layer));
}

// Checkpoints have FP8 scales in many ways; the preparer gets them written out for every row.
Result<Tensors> fp8_layer(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const std::vector<std::uint64_t> block, params.counts("block"));
  Encoding encoding = formats::kFp8Channel;
  if (block.size() == 2) encoding.block_k = static_cast<std::uint32_t>(block[1]);
  LODE_TRY(Layer layer, read_weights(request, kShort, encoding));
  LODE_TRY(layer.shape.model_format, activations_param(params, "orig_dtype"));
  const auto scales = [&](std::string_view name, std::uint64_t rows,
                          std::uint64_t k) -> Result<std::vector<std::byte>> {
    LODE_TRY(const NamedTensor* const stored, want(request.inputs, name));
    return fp8_scales_by_row(*stored, {layer.shape.num_experts, rows, k, block, {}, false});
  };
  const std::uint64_t rows = layer.shape.num_halves() * layer.shape.intermediate;
  LODE_TRY(layer.tensors[LayerPart::kGateUpScales], scales("w13_scale", rows, layer.shape.hidden));
  LODE_TRY(layer.tensors[LayerPart::kDownScales],
           scales("w2_scale", layer.shape.hidden, layer.shape.intermediate));
  LODE_TRY_STATUS(read_biases(request, layer));
  LODE_TRY(const MarlinExperts experts, marlin_experts(layer.shape, false));
  LODE_TRY_STATUS(params.agree("padded_n", json::Value(experts.padded_intermediate)));
  return prepared(request, kShort, experts, std::move(layer));
}

constexpr auto kFacts = joined(
    kLayerFacts,
    std::array<ParamRow, 1>{{{"gated", "whether w13 has gate and up", ParamUse::kFact, ""}}});
constexpr auto kFactsOfGroups =
    joined(kFacts, std::array<ParamRow, 1>{{{"group_size", "k of a block", ParamUse::kFact, ""}}});
constexpr ParamRow kParamDtype{"param_dtype", kActivationsParam, ParamUse::kOptional, "bf16"};
constexpr ParamRow kInputDtype{"input_dtype", kInputDtypeParam, ParamUse::kOptional, "nothing"};
constexpr auto kNvfp4Params = joined(std::array{kParamDtype}, kFactsOfGroups);
constexpr auto kMxfp4Params = joined(std::array{kParamDtype, kInputDtype}, kFactsOfGroups);
constexpr auto kFp4Params = joined(
    kMxfp4Params, std::array<ParamRow, 1>{{{"kind", "nvfp4 or mxfp4", ParamUse::kFact, ""}}});
constexpr auto kFp8Params = joined(
    std::array<ParamRow, 3>{{{"block", "[rows, k] of a block", ParamUse::kOptional, "no blocks"},
                             {"orig_dtype", kActivationsParam, ParamUse::kOptional, "bf16"},
                             {"padded_n", "N, padded", ParamUse::kFact, ""}}},
    kFacts);
constexpr auto kMxfp8Params = joined(
    std::array<ParamRow, 1>{{{"default_dtype", kActivationsParam, ParamUse::kOptional, "bf16"}}},
    kFactsOfGroups);

constexpr std::array<InputRow, 2> kBiases{
    {{"w13_bias", "F32, BF16 or F16 [E, s*N]", false}, {"w2_bias", "[E, K]", false}}};
constexpr auto kNvfp4Inputs =
    joined(std::array<InputRow, 6>{{{"w13", "U8 [E, s*N, K/2]"},
                                    {"w2", "U8 [E, K, N/2]"},
                                    {"w13_scale", "F8_E4M3 [E, s*N, K/16]"},
                                    {"w2_scale", "F8_E4M3 [E, K, N/16]"},
                                    {"w13_scale_2", "F32 [E], or [E, 2] of gate and up"},
                                    {"w2_scale_2", "F32 [E]"}}},
           kBiases);
constexpr auto kFp4Inputs = joined(
    std::array<InputRow, 6>{{{"w13_weight", "U8 [E, s*N, K/2]"},
                             {"w2_weight", "U8 [E, K, N/2]"},
                             {"w13_weight_scale", "U8, or of NVFP4 F8_E4M3 [E, s*N, groups]"},
                             {"w2_weight_scale", "the same [E, K, groups]"},
                             {"w13_weight_scale_2", "F32 [E], or [E, 2], of NVFP4", false},
                             {"w2_weight_scale_2", "F32 [E], of NVFP4", false}}},
    kBiases);
constexpr auto kMxfp4Inputs =
    joined(std::array<InputRow, 4>{{{"w13", "U8 [E, s*N, K/2]"},
                                    {"w2", "U8 [E, K, N/2]"},
                                    {"w13_scale", "U8 or F8_E8M0 [E, s*N, K/32]"},
                                    {"w2_scale", "U8 or F8_E8M0 [E, K, N/32]"}}},
           kBiases);
constexpr auto kFp8Inputs = joined(
    std::array<InputRow, 4>{
        {{"w13", "F8_E4M3 [E, s*N, K]"},
         {"w2", "F8_E4M3 [E, K, N]"},
         {"w13_scale", "F32, BF16 or F16 [E], [E, s], [E, s*N, 1] or of blocks"},
         {"w2_scale", "the same [E], [E, K, 1] or of blocks"}}},
    kBiases);
constexpr std::array<InputRow, 4> kMxfp8Inputs{{{"w13", "F8_E4M3 [E, s*N, K]"},
                                                {"w2", "F8_E4M3 [E, K, N]"},
                                                {"w13_scale", "U8 or F8_E8M0 [E, s*N, K/32]"},
                                                {"w2_scale", "U8 or F8_E8M0 [E, K, N/32]"}}};

constexpr std::array<Function, 5> kFunctions{{
    {"marlin-nvfp4-experts",
     {"marlin_utils_fp4.prepare_nvfp4_moe_layer_for_marlin"},
     "NVFP4 experts for the Marlin kernels, each half padded",
     kNvfp4Inputs,
     kNvfp4Params,
     true,
     nvfp4_layer},
    {"marlin-fp4-experts",
     {"marlin_utils_fp4.prepare_moe_fp4_layer_for_marlin"},
     "NVFP4 or MXFP4 experts for the Marlin kernels, not padded",
     kFp4Inputs,
     kFp4Params,
     true,
     fp4_layer},
    {"marlin-mxfp4-experts",
     {"marlin_utils_fp4.prepare_moe_mxfp4_layer_for_marlin"},
     "MXFP4 experts for the Marlin kernels, of sizes that were padded before",
     kMxfp4Inputs,
     kMxfp4Params,
     true,
     mxfp4_layer},
    {"marlin-fp8-experts",
     {"marlin_utils_fp8.prepare_fp8_moe_layer_for_marlin"},
     "FP8 experts for the Marlin kernels, scales of matrices, rows or blocks, each half padded",
     kFp8Inputs,
     kFp8Params,
     true,
     fp8_layer},
    {"marlin-mxfp8-experts",
     {"marlin_utils_fp8.prepare_mxfp8_moe_layer_for_marlin"},
     "MXFP8 experts for the Marlin kernels, each half padded",
     kMxfp8Inputs,
     kMxfp8Params,
     true,
     mxfp8_layer},
}};

}  // namespace

std::span<const Function> marlin_expert_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
