#include "lode/targets/cutlass_forms.h"

namespace lode::targets {
namespace {

using formats::Format;
using layout::GateUpOrder;
using layout::RowShuffle;

constexpr std::byte kScaleOne{127};  // E8M0

LayerForm padded(const ExpertsShape& shape, std::uint64_t hidden_unit,
                 std::uint64_t intermediate_unit) noexcept {
  LayerForm form;
  form.hidden = align_up(shape.hidden, hidden_unit);
  form.intermediate = align_up(shape.intermediate, intermediate_unit);
  return form;
}

LayerForm nvfp4_form(const ExpertsShape& shape, std::uint64_t hidden_unit) noexcept {
  LayerForm form = padded(shape, hidden_unit, shape.gated ? 64 : 128);
  form.scales = PartTile::kScaleTiles;
  form.scale_numbers = PartNumbers::kOneNvfp4Scale;
  form.scale_dtype = Format::kE4m3;
  form.scalars = ScalarSet::kNvfp4;
  return form;
}

GateUpOrder order_of_checkpoint(const ExpertsShape& shape) noexcept {
  return shape.rows_in_turn ? GateUpOrder::kGateUpInTurn : GateUpOrder::kGateThenUp;
}

}  // namespace

LayerForm plain_form(const ExpertsShape& shape) noexcept { return padded(shape, 1, 1); }

LayerForm nvfp4_cutlass_form(const ExpertsShape& shape, GateUpOrder order) noexcept {
  LayerForm form = nvfp4_form(shape, 1);
  form.order = order;
  return form;
}

LayerForm nvfp4_cutedsl_form(const ExpertsShape& shape) noexcept {
  LayerForm form = nvfp4_form(shape, 256);
  form.order = GateUpOrder::kUpGateBy64;
  return form;
}

LayerForm nvfp4_trtllm_form(const ExpertsShape& shape) noexcept {
  LayerForm form = nvfp4_form(shape, 256);
  form.order = GateUpOrder::kUpGateInTurn;
  form.shuffle = RowShuffle::kBy32;
  form.scalars = ScalarSet::kNvfp4Trtllm;
  return form;
}

LayerForm nvfp4_b12x_form(const ExpertsShape& shape) noexcept {
  LayerForm form = nvfp4_cutlass_form(shape, GateUpOrder::kUpThenGate);
  form.scale_numbers = PartNumbers::kFolded;
  form.scalars = ScalarSet::kNvfp4Folded;
  return form;
}

LayerForm mxfp4_vllm_cutlass_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 1, 64);
  form.order = order_of_checkpoint(shape);
  form.scales = PartTile::kScaleTiles;
  return form;
}

LayerForm mxfp4_cutlass_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 128, 128);
  form.order = GateUpOrder::kUpThenGate;
  form.scales = PartTile::kScaleTiles;
  form.gate_up_bias = PartNumbers::kToBf16;
  return form;
}

LayerForm mxfp4_sm90_form(const ExpertsShape& shape, layout::Sm90Version version) noexcept {
  LayerForm form = mxfp4_cutlass_form(shape);
  form.codes = PartTile::kSm90Codes;
  form.sm90 = version;
  return form;
}

LayerForm mxfp4_trtllm_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 256, 128);
  form.order = GateUpOrder::kUpGateInTurn;
  form.shuffle = RowShuffle::kBy32;
  form.scales = PartTile::kScaleTiles;
  form.scale_dtype = Format::kE4m3;
  form.gate_up_bias = PartNumbers::kToF32;
  form.down_bias = PartNumbers::kToF32;
  return form;
}

LayerForm mxfp4_b12x_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 1, 64);
  form.order = order_of_checkpoint(shape);
  return form;
}

LayerForm mxfp8_trtllm_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 256, 128);
  form.order = GateUpOrder::kUpGateInTurn;
  form.shuffle = RowShuffle::kBy32;
  form.scales = PartTile::kScaleTiles;
  form.scale_padding = kScaleOne;
  return form;
}

LayerForm fp8_tensor_cutlass_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 1, shape.gated ? 16 : 128);
  form.order = GateUpOrder::kUpThenGate;
  form.code_numbers = PartNumbers::kOneFp8Scale;
  form.scalars = ScalarSet::kFp8Tensor;
  return form;
}

LayerForm fp8_tensor_trtllm_form(const ExpertsShape& shape) noexcept {
  LayerForm form = fp8_tensor_cutlass_form(shape);
  form.order = GateUpOrder::kUpGateInTurn;
  form.shuffle = RowShuffle::kBy32;
  form.scalars = ScalarSet::kFp8TensorTrtllm;
  return form;
}

LayerForm fp8_block_cutlass_form(const ExpertsShape& shape) noexcept {
  LayerForm form = plain_form(shape);
  form.order = GateUpOrder::kUpThenGate;
  form.scale_numbers = PartNumbers::kClamped;
  return form;
}

LayerForm fp8_block_trtllm_form(const ExpertsShape& shape) noexcept {
  LayerForm form = fp8_block_cutlass_form(shape);
  form.shuffle = RowShuffle::kBy16;
  form.codes = PartTile::kBlockMajor;
  return form;
}

LayerForm bf16_cutlass_form(const ExpertsShape& shape) noexcept {
  LayerForm form = plain_form(shape);
  form.order = GateUpOrder::kUpThenGate;
  return form;
}

LayerForm bf16_trtllm_form(const ExpertsShape& shape) noexcept {
  LayerForm form = padded(shape, 1, 128);
  form.order = GateUpOrder::kUpGateInTurn;
  form.shuffle = RowShuffle::kBy32;
  form.codes = PartTile::kBlockMajor;
  form.flat_blocks = true;
  return form;
}

}  // namespace lode::targets
