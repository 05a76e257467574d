#include <array>
#include <limits>

#include "lode/base/fmt.h"
#include "lode/formats/fp8_requantise.h"
#include "lode/formats/ue8m0_requantise.h"
#include "lode/targets/fp8_tensor.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/function_rows.h"

namespace lode::targets {
namespace {

using formats::CodeMap;
using formats::Format;
using formats::ScaleRounding;
using Tensors = std::vector<NamedTensor>;

/// Every byte of a tensor through a map, in each way.
Result<NamedTensor> mapped(Way way, const NamedTensor& tensor, std::string_view name, Format dtype,
                           const CodeMap& map) {
  LODE_TRY(NamedTensor out, make_tensor(name, dtype, tensor.shape));
  make_units(way, tensor.bytes, matrices_of(tensor).columns, out.bytes,
             [&](auto from, auto to, std::uint64_t) {
               formats::map_codes(map, from.data(), from.size(), to.data());
             });
  return out;
}

// Two scales of w13 brought to one.

/// w13 of experts with the halves brought to one scale, as `rounding` has it.
Result<NamedTensor> one_scale_w13(const Request& request, const NamedTensor& w13,
                                  std::string_view name, ScaleRounding rounding) {
  LODE_TRY(const NamedTensor* const scale, want(request.inputs, "w13_scale"));
  const std::vector<float> scales = numbers_of(*scale);
  ExpertsShape shape;
  shape.gated = scale->shape.back() == 2;
  LayerScalars scalars;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    (shape.gated && i % 2 == 1 ? scalars.up_scale : scalars.gate_scale).push_back(scales[i]);
  }
  const std::uint64_t row_bytes = w13.shape[2];
  const std::uint64_t half_rows = w13.shape[1] / shape.num_halves();
  const std::uint64_t expert_bytes = w13.shape[1] * row_bytes;
  LODE_TRY(NamedTensor out, make_tensor(name, Format::kE4m3, w13.shape));
  for (std::uint64_t e = 0; e < w13.shape[0]; ++e) {
    const OneScale one = one_scale(shape, scalars, e, rounding);
    const auto place = std::span(out.bytes).subspan(e * expert_bytes, expert_bytes);
    const auto source = std::span(w13.bytes).subspan(e * expert_bytes, expert_bytes);
    make_units(request.way, source, row_bytes, place, [&](auto from, auto to, std::uint64_t first) {
      for (std::uint64_t row = 0; row * row_bytes < from.size(); ++row) {
        one.apply(first + row < half_rows ? 0 : 1, from.subspan(row * row_bytes, row_bytes),
                  to.subspan(row * row_bytes, row_bytes));
      }
    });
  }
  return out;
}

Result<Tensors> moe_requant(const Request& request) {
  LODE_TRY(const NamedTensor* const w13,
           want(request.inputs, "w13", {Format::kE4m3}, {kAnyExtent, kAnyExtent, kAnyExtent}));
  LODE_TRY(const NamedTensor* const scale,
           want(request.inputs, "w13_scale", {Format::kF32}, {w13->shape[0], kAnyExtent}));
  const std::uint64_t halves = scale->shape[1];
  if (halves == 0 || halves > 2 || w13->shape[1] % halves != 0) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "tensor w13_scale",
                 .wanted = "one scale an expert, or two and an even number of rows in w13",
                 .found = describe(*scale)};
  }
  const Params params(request.params);
  LODE_TRY_STATUS(
      check_layer_facts(params, {w13->shape[0], w13->shape[2], w13->shape[1] / halves}));
  LODE_TRY(const bool unrounded, params.flag("unrounded_scale", false));
  const ScaleRounding rounding = unrounded ? ScaleRounding::kNone : ScaleRounding::kToF16;
  Tensors out(3);
  LODE_TRY(out[0], one_scale_w13(request, *w13, "w13", rounding));
  LODE_TRY(out[1], one_scale_w13(request, *w13, "cpu_w13", ScaleRounding::kNone));
  LODE_TRY(out[2], one_scale_w13(request, *w13, "gpu_w13", ScaleRounding::kToF16));
  const std::vector<float> scales = numbers_of(*scale);
  std::vector<float> largest;
  for (std::uint64_t e = 0; e < w13->shape[0]; ++e) {
    largest.push_back(formats::largest_scale(std::span(scales).subspan(e * halves, halves)));
  }
  out.push_back(tensor_of("w13_scale", {w13->shape[0]}, largest));
  return out;
}

/// A matrix of shards with the scales of tensor `scale_name`, brought to one scale in place.
Status add_one_scale(const Request& request, std::string_view suffix, Tensors& out) {
  LODE_TRY(const NamedTensor* const weight,
           want(request.inputs, "weight", {Format::kE4m3}, {kAnyExtent, kAnyExtent}));
  const std::string scale_name = fmt::format("weight_scale{}", suffix);
  LODE_TRY(const NamedTensor* const scale,
           want(request.inputs, scale_name, {Format::kF32}, {kAnyExtent}));
  const Params params(request.params);
  LODE_TRY_STATUS(params.agree("K", json::Value(weight->shape[1])));
  LODE_TRY(const auto widths, params.counts("logical_widths"));
  LODE_TRY(const bool unrounded, params.flag("unrounded_scale", false));
  NamedTensor made = renamed(*weight, fmt::format("weight{}", suffix), Format::kE4m3);
  LODE_TRY(const float largest,
           formats::requantise_shards(made.bytes, weight->shape[1], widths, numbers_of(*scale),
                                      unrounded ? ScaleRounding::kNone : ScaleRounding::kToF16));
  out.push_back(std::move(made));
  out.push_back(tensor_of(scale_name, {1}, std::span(&largest, 1)));
  return {};
}

Result<Tensors> dense_requant(const Request& request) {
  Tensors out;
  LODE_TRY_STATUS(add_one_scale(request, "", out));
  if (find(request.inputs, "weight_scale_unloaded") != nullptr) {
    LODE_TRY_STATUS(add_one_scale(request, "_unloaded", out));
  }
  return out;
}

Result<Tensors> channelwise(const Request& request) {
  LODE_TRY(const NamedTensor* const scale,
           want(request.inputs, "weight_scale", {Format::kF32}, {kAnyExtent}));
  LODE_TRY(const auto widths, Params(request.params).counts("logical_widths"));
  LODE_TRY(const auto scales, formats::channelwise_scales(widths, numbers_of(*scale)));
  return Tensors{tensor_of("out", {scales.size(), 1}, scales)};
}

Result<Tensors> input_scales(const Request& request) {
  Tensors out;
  for (const std::string_view name : {"w13", "w2"}) {
    LODE_TRY(const NamedTensor* const scale,
             want(request.inputs, fmt::format("{}_input_scale", name)));
    if (scale->dtype != Format::kF32 || scale->bytes.empty()) {
      return Error{.code = Code::kInvalidSource,
                   .thing = fmt::format("tensor {}", scale->name),
                   .wanted = "F32 scales, one at least",
                   .found = describe(*scale)};
    }
    const float largest = formats::largest_scale(numbers_of(*scale));
    out.push_back(tensor_of(name, {1}, std::span(&largest, 1)));
  }
  return out;
}

/// Scales that double, if there are any.
void add_doubled(const Request& request, std::string_view name, Tensors& out) {
  const NamedTensor* const scale = find(request.inputs, name);
  if (scale == nullptr || scale->dtype != Format::kF32) return;
  std::vector<float> scales = numbers_of(*scale);
  for (float& one : scales) one = formats::fnuz_scale(one);
  out.push_back(tensor_of(name, scale->shape, scales));
}

Result<Tensors> fnuz(const Request& request) {
  LODE_TRY(const NamedTensor* const weight, want(request.inputs, "weight"));
  if (weight->dtype != Format::kE4m3) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "tensor weight",
                 .wanted = "F8_E4M3",
                 .found = describe(*weight)};
  }
  Tensors out;
  for (const std::string_view name : {"weight", "weight_block"}) {
    LODE_TRY(NamedTensor codes,
             mapped(request.way, *weight, name, Format::kU8, formats::fnuz_map()));
    out.push_back(std::move(codes));
  }
  for (const std::string_view name : {"weight_scale", "input_scale", "block_scale"}) {
    add_doubled(request, name, out);
  }
  const NamedTensor* const e8m0 = find(request.inputs, "e8m0");
  if (e8m0 == nullptr || formats::info(e8m0->dtype).bits != 8) return out;
  CodeMap map;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    map.of[byte] = formats::fnuz_scale_e8m0(static_cast<std::uint8_t>(byte));
  }
  LODE_TRY(NamedTensor scales, mapped(request.way, *e8m0, "e8m0", Format::kU8, map));
  out.push_back(std::move(scales));
  return out;
}

Result<Tensors> widen(const Request& request) {
  LODE_TRY(const NamedTensor* const scale, want(request.inputs, "bytes"));
  if (scale->dtype != Format::kU8 && scale->dtype != Format::kE8m0) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "tensor bytes",
                 .wanted = "U8 or F8_E8M0",
                 .found = describe(*scale)};
  }
  std::vector<float> widened;
  widened.reserve(scale->bytes.size());
  for (const std::byte byte : scale->bytes) {
    widened.push_back(formats::widen_e8m0(std::to_integer<std::uint8_t>(byte)));
  }
  const NamedTensor numbers = tensor_of("f32", scale->shape, widened);
  return Tensors{renamed(numbers, "f32_bits", Format::kI32), numbers};
}

constexpr std::array<InputRow, 2> kExpertInputs{
    {{"w13", "F8_E4M3 [E, 2N, K]"}, {"w13_scale", "F32 [E, 2], or [E, 1] of [E, N, K]"}}};
constexpr std::array<InputRow, 3> kDenseInputs{
    {{"weight", "F8_E4M3 [N, K]"},
     {"weight_scale", "F32 [shards]"},
     {"weight_scale_unloaded", "F32 [shards], of a second result", false}}};
constexpr std::array<InputRow, 1> kShardInputs{{{"weight_scale", "F32 [shards]"}}};
constexpr std::array<InputRow, 2> kInputScaleInputs{
    {{"w13_input_scale", "F32 [any]"}, {"w2_input_scale", "F32 [any]"}}};
constexpr std::array<InputRow, 5> kFnuzInputs{{{"weight", "F8_E4M3 [any]"},
                                               {"weight_scale", "F32 [any]", false},
                                               {"input_scale", "F32 [any]", false},
                                               {"block_scale", "F32 [any]", false},
                                               {"e8m0", "U8 or F8_E8M0 [any]", false}}};
constexpr std::array<InputRow, 1> kWidenInputs{{{"bytes", "U8 or F8_E8M0 [any]"}}};
constexpr ParamRow kUnrounded{"unrounded_scale", "the smaller scale is not rounded to F16 first",
                              ParamUse::kOptional, "false"};
constexpr ParamRow kWidths{"logical_widths", "rows of each shard", ParamUse::kNeeded, ""};
constexpr auto kExpertParams = joined(std::array{kUnrounded}, kLayerFacts);
constexpr std::array kDenseParams{kWidths, kUnrounded, ParamRow{"K", "K", ParamUse::kFact, ""}};
constexpr std::array kShardParams{kWidths};

constexpr std::array<Function, 6> kFunctions{{
    {"fp8-one-scale",
     {"fp8_utils.process_fp8_weight_tensor_strategy_moe"},
     "brings gate and up of FP8 experts to the larger of their scales",
     kExpertInputs,
     kExpertParams,
     true,
     moe_requant},
    {"fp8-one-scale-dense",
     {"fp8_utils.process_fp8_weight_tensor_strategy -> w8a8_utils.requantize_with_max_scale"},
     "brings the shards of an FP8 matrix to the largest of their scales",
     kDenseInputs,
     kDenseParams,
     true,
     dense_requant},
    {"fp8-channelwise",
     {"w8a8_utils.convert_to_channelwise"},
     "repeats the scale of each shard for its rows",
     kShardInputs,
     kShardParams,
     false,
     channelwise},
    {"fp8-input-scales",
     {"fp8_utils.process_fp8_input_tensor_strategy_moe"},
     "the largest activation scale of all experts",
     kInputScaleInputs,
     {},
     false,
     input_scales},
    {"fp8-fnuz",
     {"w8a8_utils.normalize_e4m3fn_to_e4m3fnuz; fp8_utils.process_fp8_weight_block_strategy with a "
      "fnuz platform"},
     "E4M3 to E4M3FNUZ, scales doubled",
     kFnuzInputs,
     {},
     true,
     fnuz},
    {"e8m0-widen",
     {"fp8_utils._upcast_e8m0_to_fp32"},
     "E8M0 scales to fp32 as engines do it",
     kWidenInputs,
     {},
     false,
     widen},
}};

}  // namespace

std::span<const Function> fp8_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
