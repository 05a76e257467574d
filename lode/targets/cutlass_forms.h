#pragma once

#include "lode/targets/cutlass_layer.h"

namespace lode::targets {

// What each family of kernels wants, by the encoding that it reads: the sizes it pads to and the
// choice on each axis of a LayerForm.
// Source: weight_layouts 2.4 to 2.9, 9 (sizes and padding as vLLM 0.33.0 has them).

/// Nothing padded, nothing moved: rows of gate, then of up.
LayerForm plain_form(const ExpertsShape& shape) noexcept;

/// NVFP4 for vllm-cutlass (gate, then up) and flashinfer-cutlass (up, then gate): block scales
/// 128x4; each half padded to 64 rows, the only one to 128.
LayerForm nvfp4_cutlass_form(const ExpertsShape& shape, layout::GateUpOrder order) noexcept;
/// NVFP4 for FlashInfer's CuteDSL kernels: 64 rows of up and of gate in turn.
LayerForm nvfp4_cutedsl_form(const ExpertsShape& shape) noexcept;
/// NVFP4 for TRT-LLM: rows of up and gate in turn, shuffled by 32, scales likewise and then 128x4;
/// hidden padded to 256.
LayerForm nvfp4_trtllm_form(const ExpertsShape& shape) noexcept;
/// NVFP4 for B12X: as flashinfer-cutlass, the scales of the matrices folded into the block scales.
LayerForm nvfp4_b12x_form(const ExpertsShape& shape) noexcept;

/// MXFP4 with FP4 or MXFP8 activations: block scales 128x4.
LayerForm mxfp4_vllm_cutlass_form(const ExpertsShape& shape) noexcept;
LayerForm mxfp4_cutlass_form(const ExpertsShape& shape) noexcept;
/// MXFP4 with 16-bit activations on SM90.
LayerForm mxfp4_sm90_form(const ExpertsShape& shape, layout::Sm90Version version) noexcept;
LayerForm mxfp4_trtllm_form(const ExpertsShape& shape) noexcept;
/// MXFP4 as the checkpoint has it, also where its rows are in turn.
LayerForm mxfp4_b12x_form(const ExpertsShape& shape) noexcept;

LayerForm mxfp8_trtllm_form(const ExpertsShape& shape) noexcept;

LayerForm fp8_tensor_cutlass_form(const ExpertsShape& shape) noexcept;
LayerForm fp8_tensor_trtllm_form(const ExpertsShape& shape) noexcept;
LayerForm fp8_block_cutlass_form(const ExpertsShape& shape) noexcept;
LayerForm fp8_block_trtllm_form(const ExpertsShape& shape) noexcept;

LayerForm bf16_cutlass_form(const ExpertsShape& shape) noexcept;
LayerForm bf16_trtllm_form(const ExpertsShape& shape) noexcept;

}  // namespace lode::targets
