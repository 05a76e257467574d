#include <array>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/layout/block_scales.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/functions_flashinfer_layer.h"

namespace lode::targets {
namespace {

using formats::Format;
using layout::GateUpOrder;
using Outputs = Result<std::vector<NamedTensor>>;

bool pads_gated_rows(const NamedLayer& layer, const LayerForm& form) {
  return layer.shape.gated && form.intermediate != layer.shape.intermediate;
}

Error unknown_backend(const std::string& backend, std::string_view wanted) {
  return Error{.code = Code::kUsage,
               .thing = "param backend",
               .wanted = std::string(wanted),
               .found = backend};
}

// NVFP4 (2.4, 2.5).

Result<NamedLayer> nvfp4_layer(const Request& request, bool rows_in_turn = false) {
  LODE_TRY(const bool gated, gated_of(request));
  return read_layer(request, {formats::kNvfp4, gated, rows_in_turn, true});
}

Result<LayerForm> nvfp4_form_of(const ExpertsShape& shape, const std::string& backend) {
  if (backend == "FLASHINFER_TRTLLM") return nvfp4_trtllm_form(shape);
  const bool vllm = backend == "VLLM_CUTLASS";
  if (!vllm && backend != "FLASHINFER_CUTLASS" && backend != "FLASHINFER_B12X" &&
      backend != "FLASHINFER_CUTEDSL_BATCHED") {
    return unknown_backend(backend,
                           "VLLM_CUTLASS, FLASHINFER_CUTLASS, FLASHINFER_TRTLLM, FLASHINFER_B12X "
                           "or FLASHINFER_CUTEDSL_BATCHED");
  }
  const bool swaps = backend == "FLASHINFER_CUTLASS" || backend == "FLASHINFER_B12X";
  LayerForm form =
      nvfp4_cutlass_form(shape, swaps ? GateUpOrder::kUpThenGate : GateUpOrder::kGateThenUp);
  if (vllm) form.input_scales = InputScales::kOfEachExpert;
  return form;
}

/// Of the CUTLASS kernels the sizes follow from the checkpoint's; cases of theirs say those of it,
/// or what they become.
Status check_padded_sizes(const Params& params, const ExpertsShape& shape, const LayerForm& form) {
  LODE_TRY(const std::uint64_t hidden, params.count("hidden_out", form.hidden));
  LODE_TRY(const std::uint64_t intermediate, params.count("intermediate_out", form.intermediate));
  if (hidden != shape.hidden) {
    LODE_TRY_STATUS(params.agree("hidden_out", json::Value(form.hidden)));
  }
  if (intermediate == shape.intermediate) return {};
  return params.agree("intermediate_out", json::Value(form.intermediate));
}

Outputs nvfp4_prepare(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const NamedLayer layer, nvfp4_layer(request));
  LODE_TRY(const std::string backend, params.word("backend"));
  LODE_TRY(LayerForm form, nvfp4_form_of(layer.shape, backend));
  LODE_TRY_STATUS(backend == "FLASHINFER_TRTLLM" ? take_padded_sizes(params, form)
                                                 : check_padded_sizes(params, layer.shape, form));
  LODE_TRY(std::vector<NamedTensor> outputs, run_layer(layer, form, request.way, kLayerNames));
  if (pads_gated_rows(layer, form)) add_right_names(outputs);
  return outputs;
}

Outputs nvfp4_b12x(const Request& request) {
  LODE_TRY(const NamedLayer layer, nvfp4_layer(request));
  LODE_TRY(std::vector<NamedTensor> outputs,
           run_layer(layer, nvfp4_cutlass_form(layer.shape, GateUpOrder::kUpThenGate), request.way,
                     kLayerNames));
  constexpr std::array kFolded{OutputName{"w13_weight_scale", "folded_w13_scale"},
                               OutputName{"w2_weight_scale", "folded_w2_scale"},
                               OutputName{"w13_weight_scale_2", "folded_w13_scale_2"},
                               OutputName{"w2_weight_scale_2", "folded_w2_scale_2"},
                               OutputName{"a2_gscale", "folded_a2_gscale"}};
  LODE_TRY(std::vector<NamedTensor> folded,
           run_layer(layer, nvfp4_b12x_form(layer.shape), request.way, kFolded));
  for (NamedTensor& tensor : folded) outputs.push_back(std::move(tensor));
  return outputs;
}

/// The same bytes of swizzled scales [E, M, C] as the kernel's view of six axes has them in order.
Result<NamedTensor> mma_view(const NamedTensor& scales) {
  const std::uint64_t experts = scales.shape[0];
  const std::uint64_t rows = scales.shape[1];
  const std::uint64_t columns = scales.shape[2];
  LODE_TRY(NamedTensor view,
           make_tensor("w13_scale_mma_logical", scales.dtype,
                       {32, 4, rows / 128, layout::kScaleTileColumns, columns / 4, experts}));
  const layout::BlockScales places{layout::kScales128x4, rows, columns};
  for (std::uint64_t expert = 0; expert < experts; ++expert) {
    for (std::uint64_t offset = 0; offset < rows * columns; ++offset) {
      const auto [m, c] = places.at(offset);
      const std::uint64_t strip = (m % 32 * 4 + m % 128 / 32) * (rows / 128) + m / 128;
      const std::uint64_t at = ((strip * 4 + c % 4) * (columns / 4) + c / 4) * experts + expert;
      view.bytes[at] = scales.bytes[expert * rows * columns + offset];
    }
  }
  return view;
}

/// gpt-oss layers (swigluoai) have their rows in turn.
Result<NamedLayer> cutedsl_layer(const Request& request) {
  LODE_TRY(const std::string activation, Params(request.params).word("activation", "silu"));
  if (activation != "silu" && activation != "silu_no_mul" && activation != "swigluoai") {
    return Error{.code = Code::kUsage,
                 .thing = "param activation",
                 .wanted = "silu, silu_no_mul or swigluoai",
                 .found = activation};
  }
  return nvfp4_layer(request, activation == "swigluoai");
}

Outputs nvfp4_cutedsl(const Request& request) {
  LODE_TRY(const NamedLayer layer, cutedsl_layer(request));
  LayerForm form = nvfp4_cutedsl_form(layer.shape);
  form.hidden = layer.shape.hidden;
  form.intermediate = layer.shape.intermediate;
  LODE_TRY_STATUS(take_padded_sizes(Params(request.params), form));
  LODE_TRY(std::vector<NamedTensor> outputs, run_layer(layer, form, request.way, kLayerNames));
  LODE_TRY(const NamedTensor* const scales, want(outputs, "w13_scale"));
  LODE_TRY(NamedTensor view, mma_view(*scales));
  outputs.push_back(std::move(view));
  return outputs;
}

Outputs nvfp4_cutedsl_padded(const Request& request) {
  LODE_TRY(const NamedLayer layer, cutedsl_layer(request));
  LayerForm form = nvfp4_cutedsl_form(layer.shape);
  LODE_TRY_STATUS(take_padded_sizes(Params(request.params), form));
  return run_layer(layer, form, request.way, kLayerNames);
}

// MXFP4 (2.6, 2.7): sizes are those of the tensors, which the loader has rounded up.

constexpr std::string_view kSm90Backend = "FLASHINFER_CUTLASS_MXFP4_BF16";

Result<LayerForm> mxfp4_form_of(const ExpertsShape& shape, const Params& params) {
  LODE_TRY(const std::string backend, params.word("backend"));
  if (backend != kSm90Backend && params.has("flashinfer_layout")) {
    return Error{.code = Code::kUsage,
                 .thing = "param flashinfer_layout",
                 .wanted = fmt::format("nothing, but for backend {}", kSm90Backend),
                 .found = "backend " + backend};
  }
  const auto has = [&](std::string_view part) { return backend.find(part) != std::string::npos; };
  if (has("TRTLLM")) return mxfp4_trtllm_form(shape);
  if (has("B12X") || backend == "EMULATION" || backend == "XPU") return mxfp4_b12x_form(shape);
  if (backend == "FLASHINFER_CUTLASS_MXFP4_MXFP8") return mxfp4_cutlass_form(shape);
  if (backend == kSm90Backend) {
    LODE_TRY(const std::string which, params.word("flashinfer_layout", "0.7"));
    const auto version = layout::sm90_version_by_name(which);
    if (version) return mxfp4_sm90_form(shape, *version);
    return Error{.code = Code::kUsage,
                 .thing = "param flashinfer_layout",
                 .wanted = "0.7 or 0.6.16",
                 .found = which};
  }
  if (has("CUTLASS")) return mxfp4_vllm_cutlass_form(shape);
  return unknown_backend(backend,
                         "FLASHINFER_TRTLLM_MXFP4_MXFP8 or _BF16, FLASHINFER_CUTLASS_MXFP4_MXFP8 "
                         "or _BF16, FLASHINFER_B12X, CUTLASS, XPU or EMULATION");
}

/// The scales of the SM90 kernels have five axes.
void reshape_scales(const LayerForm& form, std::vector<NamedTensor>& outputs) {
  for (NamedTensor& tensor : outputs) {
    if (tensor.name != "w13_scale" && tensor.name != "w2_scale") continue;
    if (form.codes == PartTile::kSm90Codes && tensor.shape.size() == 4) {
      tensor.shape = {tensor.shape[0], tensor.shape[1], tensor.shape[2], 16, 16};
    }
  }
}

Outputs mxfp4_prepare(const Request& request, bool rows_in_turn) {
  const Params params(request.params);
  LODE_TRY(const bool gated, gated_of(request));
  LODE_TRY(const NamedLayer layer,
           read_layer(request, {formats::kMxfp4, gated, rows_in_turn, false}));
  LODE_TRY(LayerForm form, mxfp4_form_of(layer.shape, params));
  form.hidden = layer.shape.hidden;
  form.intermediate = layer.shape.intermediate;
  LODE_TRY_STATUS(take_padded_sizes(params, form));
  LODE_TRY(std::vector<NamedTensor> outputs, run_layer(layer, form, request.way, kLayerNames));
  reshape_scales(form, outputs);
  return outputs;
}
Outputs mxfp4_gpt_oss(const Request& request) { return mxfp4_prepare(request, true); }
Outputs mxfp4_standard(const Request& request) { return mxfp4_prepare(request, false); }

// FP8 and BF16 (2.9, 9).

Outputs fp8_tensor(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const bool gated, gated_of(request));
  LODE_TRY(const bool trtllm, params.flag("trtllm", false));
  LODE_TRY(const NamedLayer layer, read_layer(request, {formats::kFp8Tensor, gated, false, false}));
  LayerForm form =
      trtllm ? fp8_tensor_trtllm_form(layer.shape) : fp8_tensor_cutlass_form(layer.shape);
  LODE_TRY_STATUS(take_padded_sizes(params, form));
  constexpr std::array kNames{OutputName{"w13_weight", "w13"}, OutputName{"w2_weight", "w2"},
                              OutputName{"w13_weight_scale", "w13_scale"},
                              OutputName{"w2_weight_scale", "w2_scale"}};
  LODE_TRY(std::vector<NamedTensor> outputs, run_layer(layer, form, request.way, kNames));
  if (pads_gated_rows(layer, form)) add_right_names(outputs);
  return outputs;
}

Outputs fp8_block(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const bool gated, gated_of(request));
  LODE_TRY(const bool trtllm, params.flag("trtllm", false));
  LODE_TRY(const std::vector<std::uint64_t> block, params.counts("block"));
  formats::Encoding encoding = formats::kFp8Block128;
  if (block.size() == 2 && block[0] > 1 && block[0] < UINT32_MAX && block[1] != 0 &&
      block[1] < UINT32_MAX) {
    encoding.block_rows = static_cast<std::uint32_t>(block[0]);
    encoding.block_k = static_cast<std::uint32_t>(block[1]);
  } else if (!block.empty()) {
    return Error{.code = Code::kUsage,
                 .thing = "param block",
                 .wanted = "rows and columns of a block, as [128, 128]",
                 .found = json::dump(*request.params.find("block"))};
  }
  LODE_TRY(const NamedLayer layer, read_layer(request, {encoding, gated, false, false}));
  const LayerForm form =
      trtllm ? fp8_block_trtllm_form(layer.shape) : fp8_block_cutlass_form(layer.shape);
  return run_layer(layer, form, request.way, kLayerNames);
}

Outputs mxfp8_trtllm(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const bool gated, gated_of(request));
  LODE_TRY(const NamedLayer layer, read_layer(request, {formats::kMxfp8, gated, false, false}));
  LODE_TRY_STATUS(params.agree("block", json::Value(json::Array{1, 32})));
  LayerForm form = mxfp8_trtllm_form(layer.shape);
  form.hidden = layer.shape.hidden;
  form.intermediate = layer.shape.intermediate;
  LODE_TRY_STATUS(take_padded_sizes(params, form));
  return run_layer(layer, form, request.way, kLayerNames);
}

Outputs bf16_of(const Request& request, LayerForm (*make_form)(const ExpertsShape&) noexcept,
                bool pads_gated, bool flat) {
  const Params params(request.params);
  LODE_TRY(const bool gated, gated_of(request));
  LODE_TRY(const NamedLayer layer, read_layer(request, {formats::kPlainBf16, gated, false, false}));
  LayerForm form = make_form(layer.shape);
  form.flat_blocks = flat;
  if (gated && !pads_gated) form.intermediate = layer.shape.intermediate;
  LODE_TRY_STATUS(take_padded_sizes(params, form));
  return run_layer(layer, form, request.way, kLayerNames);
}
Outputs bf16_cutlass(const Request& request) {
  return bf16_of(request, bf16_cutlass_form, true, true);
}
Outputs bf16_trtllm_blocks(const Request& request) {
  return bf16_of(request, bf16_trtllm_form, false, false);
}
Outputs bf16_trtllm(const Request& request) {
  return bf16_of(request, bf16_trtllm_form, true, true);
}

// What they take.

constexpr std::array<InputRow, 8> kNvfp4Inputs{{{"w13", "U8 [E, halves*N, K/2]"},
                                                {"w2", "U8 [E, K, N/2]"},
                                                {"w13_scale", "F8_E4M3 [E, halves*N, K/16]"},
                                                {"w2_scale", "F8_E4M3 [E, K, N/16]"},
                                                {"w13_scale_2", "F32 [E]"},
                                                {"w2_scale_2", "F32 [E]"},
                                                {"a13_scale", "F32 [E, halves]"},
                                                {"a2_scale", "F32 [E]"}}};
constexpr std::array<InputRow, 6> kMxfp4Inputs{
    {{"w13", "U8 [E, halves*N, K/2]"},
     {"w2", "U8 [E, K, N/2]"},
     {"w13_scale", "U8 or F8_E8M0 [E, halves*N, K/32]"},
     {"w2_scale", "U8 or F8_E8M0 [E, K, N/32]"},
     {"w13_bias", "BF16, F16 or F32 [E, halves*N]", false},
     {"w2_bias", "the same [E, K]", false}}};
constexpr std::array<InputRow, 6> kFp8TensorInputs{
    {{"w13", "F8_E4M3 [E, halves*N, K]"},
     {"w2", "F8_E4M3 [E, K, N]"},
     {"w13_scale", "F32 [E]"},
     {"w2_scale", "F32 [E]"},
     {"w13_input_scale", "F32, stays as it is", false},
     {"w2_input_scale", "F32, stays as it is", false}}};
constexpr std::array<InputRow, 4> kFp8BlockInputs{
    {{"w13", "F8_E4M3 [E, halves*N, K]"},
     {"w2", "F8_E4M3 [E, K, N]"},
     {"w13_scale", "F32 [E, halves*ceil(N/128), ceil(K/128)]"},
     {"w2_scale", "F32 [E, ceil(K/128), ceil(N/128)]"}}};
constexpr std::array<InputRow, 4> kMxfp8Inputs{{{"w13", "F8_E4M3 [E, halves*N, K]"},
                                                {"w2", "F8_E4M3 [E, K, N]"},
                                                {"w13_scale", "U8 or F8_E8M0 [E, halves*N, K/32]"},
                                                {"w2_scale", "U8 or F8_E8M0 [E, K, N/32]"}}};
constexpr std::array<InputRow, 2> kBf16Inputs{
    {{"w13", "BF16 or F16 [E, halves*N, K]"}, {"w2", "the same [E, K, N]"}}};

constexpr auto kGated = joined(
    std::array<ParamRow, 1>{
        {{"gated", "whether w13 has gate and up", ParamUse::kOptional, "as the tensors have it"}}},
    kLayerFacts);
constexpr auto kPadded = joined(
    kGated, std::array<ParamRow, 2>{
                {{"hidden_out", "hidden size, padded", ParamUse::kOptional, "the kernels' own"},
                 {"intermediate_out", "intermediate size, padded", ParamUse::kOptional,
                  "the kernels' own"}}});
constexpr auto kNvfp4Params =
    joined(std::array<ParamRow, 1>{{{"backend",
                                     "VLLM_CUTLASS, FLASHINFER_CUTLASS, FLASHINFER_TRTLLM, "
                                     "FLASHINFER_B12X or FLASHINFER_CUTEDSL_BATCHED",
                                     ParamUse::kNeeded, ""}}},
           kPadded);
constexpr auto kCutedslParams =
    joined(std::array<ParamRow, 1>{{{"activation", "swigluoai: rows of gate and up are in turn",
                                     ParamUse::kOptional, "silu"}}},
           kPadded);
constexpr auto kMxfp4Params = joined(
    std::array<ParamRow, 2>{
        {{"backend",
          "FLASHINFER_TRTLLM_MXFP4_MXFP8 or _BF16, FLASHINFER_CUTLASS_MXFP4_MXFP8 or _BF16, "
          "FLASHINFER_B12X, CUTLASS, XPU or EMULATION",
          ParamUse::kNeeded, ""},
         {"flashinfer_layout", "0.7 or 0.6.16, of FLASHINFER_CUTLASS_MXFP4_BF16",
          ParamUse::kOptional, "0.7"}}},
    kPadded);
constexpr ParamRow kTrtllm{"trtllm", "for TRT-LLM instead of CUTLASS", ParamUse::kOptional,
                           "false"};
constexpr auto kFp8TensorParams = joined(std::array{kTrtllm}, kPadded);
constexpr auto kFp8BlockParams =
    joined(std::array{kTrtllm,
                      ParamRow{"block", "[rows, k] of a block", ParamUse::kOptional, "[128, 128]"}},
           kGated);
constexpr auto kMxfp8Params =
    joined(kPadded, std::array<ParamRow, 1>{{{"block", "[1, 32]", ParamUse::kFact, ""}}});

constexpr std::array<Function, 12> kFunctions{{
    {"nvfp4-flashinfer",
     {"oracle.nvfp4.convert_to_nvfp4_moe_kernel_format -> "
      "flashinfer_fp4_moe.prepare_nvfp4_moe_layer_for_fi_or_cutlass"},
     "NVFP4 experts for the CUTLASS and TRT-LLM kernels",
     kNvfp4Inputs,
     kNvfp4Params,
     true,
     nvfp4_prepare},
    {"nvfp4-b12x",
     {"oracle.nvfp4.convert_to_nvfp4_moe_kernel_format (FLASHINFER_B12X); "
      "FlashInferB12xExperts.process_weights_after_loading"},
     "NVFP4 experts for the B12X kernels, before and after the scales are folded",
     kNvfp4Inputs,
     kGated,
     true,
     nvfp4_b12x},
    {"nvfp4-cutedsl",
     {"oracle.nvfp4.convert_to_nvfp4_moe_kernel_format (FLASHINFER_CUTEDSL) -> "
      "prepare_nvfp4_moe_layer_for_flashinfer_cutedsl; nvfp4_swizzled_scale_to_cutedsl_mma_view"},
     "NVFP4 experts for the CuteDSL kernels, nothing padded",
     kNvfp4Inputs,
     kCutedslParams,
     true,
     nvfp4_cutedsl},
    {"nvfp4-cutedsl-padded",
     {"oracle.nvfp4.convert_to_nvfp4_moe_kernel_format (FLASHINFER_CUTEDSL)"},
     "NVFP4 experts for the CuteDSL kernels, each half padded to 64 rows",
     kNvfp4Inputs,
     kCutedslParams,
     true,
     nvfp4_cutedsl_padded},
    {"mxfp4-gpt-oss",
     {"oracle.mxfp4.convert_gpt_oss_weight_to_mxfp4_moe_kernel_format"},
     "MXFP4 experts whose rows of gate and up are in turn",
     kMxfp4Inputs,
     kMxfp4Params,
     true,
     mxfp4_gpt_oss},
    {"mxfp4-standard",
     {"oracle.mxfp4.convert_weight_to_mxfp4_moe_kernel_format"},
     "MXFP4 experts with gate's rows before up's",
     kMxfp4Inputs,
     kMxfp4Params,
     true,
     mxfp4_standard},
    {"fp8-tensor-flashinfer",
     {"flashinfer_utils.prepare_fp8_moe_layer_for_fi (per-tensor)"},
     "FP8 experts with one scale each",
     kFp8TensorInputs,
     kFp8TensorParams,
     true,
     fp8_tensor},
    {"fp8-block-flashinfer",
     {"flashinfer_utils.prepare_fp8_moe_layer_for_fi (block 128x128)"},
     "FP8 experts with scales of blocks",
     kFp8BlockInputs,
     kFp8BlockParams,
     true,
     fp8_block},
    {"mxfp8-trtllm",
     {"flashinfer_utils.prepare_fp8_moe_layer_for_fi (MXFP8, TRT-LLM)"},
     "MXFP8 experts for TRT-LLM",
     kMxfp8Inputs,
     kMxfp8Params,
     true,
     mxfp8_trtllm},
    {"bf16-flashinfer-cutlass",
     {"oracle.unquantized.convert_to_unquantized_kernel_format (FLASHINFER_CUTLASS)"},
     "16-bit experts with gate and up swapped",
     kBf16Inputs,
     kPadded,
     true,
     bf16_cutlass},
    {"bf16-trtllm-blocks",
     {"oracle.unquantized.convert_to_unquantized_kernel_format (FLASHINFER_TRTLLM) -> "
      "convert_moe_weights_to_flashinfer_trtllm_block_layout"},
     "16-bit experts for TRT-LLM, shaped as blocks",
     kBf16Inputs,
     kPadded,
     true,
     bf16_trtllm_blocks},
    {"bf16-trtllm",
     {"oracle.unquantized.convert_to_unquantized_kernel_format (FLASHINFER_TRTLLM)"},
     "16-bit experts for TRT-LLM, shaped as they came",
     kBf16Inputs,
     kPadded,
     true,
     bf16_trtllm},
}};

}  // namespace

std::span<const Function> flashinfer_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
