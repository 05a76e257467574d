#include <array>
#include <string>

#include "lode/targets/cutlass_forms.h"
#include "lode/targets/routes.h"

namespace lode::targets {
namespace {

using formats::Encoding;
using layout::GateUpOrder;
using Made = Result<std::unique_ptr<Preparer>>;

template <const Encoding&... kEncodings>
bool takes(const Encoding& encoding) {
  return ((encoding == kEncodings) || ...);
}
constexpr auto kTakesNvfp4 = takes<formats::kNvfp4, formats::kNvfp4Divisor>;
constexpr auto kTakesMxfp4 = takes<formats::kMxfp4>;
constexpr auto kTakesFp8Tensor = takes<formats::kFp8Tensor>;
constexpr auto kTakesFp8Block = takes<formats::kFp8Block128>;
constexpr auto kTakes16Bit = takes<formats::kPlainBf16, formats::kPlainF16>;

/// Blocks of 128 rows must not hold rows of gate and of up.
Status check_block_rows(const ExpertsShape& shape) {
  if (shape.intermediate % 128 == 0) return {};
  return Error{.code = Code::kUnsupported,
               .thing = "intermediate size of fp8-block experts",
               .wanted = "a multiple of 128, the rows of a block",
               .found = std::to_string(shape.intermediate)};
}

Made nvfp4_vllm_cutlass(const ExpertsShape& shape, const Options&) {
  LayerForm form = nvfp4_cutlass_form(shape, GateUpOrder::kGateThenUp);
  form.input_scales = InputScales::kOfEachExpert;
  return make_layer_preparer(shape, form);
}
Made mxfp4_vllm_cutlass(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, mxfp4_vllm_cutlass_form(shape));
}
Made fp8_tensor_vllm_cutlass(const ExpertsShape& shape, const Options&) {
  LayerForm form = plain_form(shape);
  form.code_numbers = PartNumbers::kOneFp8Scale;
  form.scalars = ScalarSet::kFp8Tensor;
  return make_layer_preparer(shape, form);
}
Made fp8_channel_vllm_cutlass(const ExpertsShape& shape, const Options&) {
  LayerForm form = plain_form(shape);
  form.scale_numbers = PartNumbers::kToF32;
  return make_layer_preparer(shape, form);
}
Made fp8_block_vllm_cutlass(const ExpertsShape& shape, const Options&) {
  LODE_TRY_STATUS(check_block_rows(shape));
  LayerForm form = plain_form(shape);
  form.scale_numbers = PartNumbers::kToF32;
  return make_layer_preparer(shape, form);
}

Made nvfp4_flashinfer_cutlass(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, nvfp4_cutlass_form(shape, GateUpOrder::kUpThenGate));
}
Made mxfp4_flashinfer_cutlass(const ExpertsShape& shape, const Options& options) {
  if (options.fp8_activations) return make_layer_preparer(shape, mxfp4_cutlass_form(shape));
  const auto version = layout::sm90_version_by_name(options.flashinfer);
  if (!version) {
    return Error{.code = Code::kUsage,
                 .thing = "version of FlashInfer, whose SM90 layouts differ",
                 .wanted = "0.7 or 0.6.16",
                 .found = options.flashinfer};
  }
  return make_layer_preparer(shape, mxfp4_sm90_form(shape, *version));
}
Made fp8_tensor_flashinfer_cutlass(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, fp8_tensor_cutlass_form(shape));
}
Made fp8_block_flashinfer_cutlass(const ExpertsShape& shape, const Options&) {
  LODE_TRY_STATUS(check_block_rows(shape));
  return make_layer_preparer(shape, fp8_block_cutlass_form(shape));
}
Made bf16_flashinfer_cutlass(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, bf16_cutlass_form(shape));
}

Made nvfp4_b12x(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, nvfp4_b12x_form(shape));
}
Made mxfp4_b12x(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, mxfp4_b12x_form(shape));
}

Made nvfp4_trtllm(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, nvfp4_trtllm_form(shape));
}
Made mxfp4_trtllm(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, mxfp4_trtllm_form(shape));
}
Made mxfp8_trtllm(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, mxfp8_trtllm_form(shape));
}
Made fp8_tensor_trtllm(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, fp8_tensor_trtllm_form(shape));
}
Made fp8_block_trtllm(const ExpertsShape& shape, const Options&) {
  LODE_TRY_STATUS(check_block_rows(shape));
  return make_layer_preparer(shape, fp8_block_trtllm_form(shape));
}
Made bf16_trtllm(const ExpertsShape& shape, const Options&) {
  return make_layer_preparer(shape, bf16_trtllm_form(shape));
}

constexpr std::array<Route, 12> kCutlass{{
    {Target::kVllmCutlass, "nvfp4", "gate, then up", "128x4", kTakesNvfp4, nvfp4_vllm_cutlass},
    {Target::kVllmCutlass, "mxfp4", "unchanged", "128x4", kTakesMxfp4, mxfp4_vllm_cutlass},
    {Target::kVllmCutlass, "fp8-tensor", "gate, then up, under one scale", "one of each expert",
     kTakesFp8Tensor, fp8_tensor_vllm_cutlass},
    {Target::kVllmCutlass, "fp8-channel", "gate, then up", "F32, one of each row",
     takes<formats::kFp8Channel>, fp8_channel_vllm_cutlass},
    {Target::kVllmCutlass, "fp8-block", "gate, then up", "F32, unchanged", kTakesFp8Block,
     fp8_block_vllm_cutlass},
    {Target::kFlashinferCutlass, "nvfp4", "up, then gate", "128x4", kTakesNvfp4,
     nvfp4_flashinfer_cutlass},
    {Target::kFlashinferCutlass,
     "mxfp4",
     "up, then gate; SM90 tiles, unless FP8 activations",
     "SM90 tiles; 128x4 for FP8 activations",
     kTakesMxfp4,
     mxfp4_flashinfer_cutlass,
     {.fp8_activations = true, .flashinfer = true}},
    {Target::kFlashinferCutlass, "fp8-tensor", "up, then gate, under one scale",
     "one of each expert", kTakesFp8Tensor, fp8_tensor_flashinfer_cutlass},
    {Target::kFlashinferCutlass, "fp8-block", "up, then gate", "likewise, at least 1e-10",
     kTakesFp8Block, fp8_block_flashinfer_cutlass},
    {Target::kFlashinferCutlass, "bf16", "up, then gate", "none", kTakes16Bit,
     bf16_flashinfer_cutlass},
    {Target::kFlashinferB12x, "nvfp4", "up, then gate", "128x4, those of the matrices folded in",
     kTakesNvfp4, nvfp4_b12x},
    {Target::kFlashinferB12x, "mxfp4", "unchanged", "unchanged", kTakesMxfp4, mxfp4_b12x},
}};

constexpr std::array<Route, 6> kTrtllm{{
    {Target::kFlashinferTrtllm, "nvfp4", "up and gate in turn, shuffled by 32",
     "likewise, then 128x4", kTakesNvfp4, nvfp4_trtllm},
    {Target::kFlashinferTrtllm, "mxfp4", "up and gate in turn, shuffled by 32",
     "likewise, then 128x4", kTakesMxfp4, mxfp4_trtllm},
    {Target::kFlashinferTrtllm, "mxfp8", "up and gate in turn, shuffled by 32",
     "likewise, then 128x4", takes<formats::kMxfp8>, mxfp8_trtllm},
    {Target::kFlashinferTrtllm, "fp8-tensor",
     "up and gate in turn, shuffled by 32, under one scale", "one of each expert", kTakesFp8Tensor,
     fp8_tensor_trtllm},
    {Target::kFlashinferTrtllm, "fp8-block", "up, then gate, shuffled by 16, BlockMajorK",
     "up, then gate, at least 1e-10", kTakesFp8Block, fp8_block_trtllm},
    {Target::kFlashinferTrtllm, "bf16", "up and gate in turn, shuffled by 32, BlockMajorK", "none",
     takes<formats::kPlainBf16>, bf16_trtllm},
}};

}  // namespace

std::span<const Route> cutlass_routes() noexcept { return kCutlass; }
std::span<const Route> trtllm_routes() noexcept { return kTrtllm; }

}  // namespace lode::targets
