#pragma once

#include <cstdint>

#include "lode/targets/experts.h"

namespace lode::targets {

// The single numbers that NVFP4 kernels read beside the weights, one an expert, in fp32 and in the
// order of the engines' operations. S = scale of the matrix, a = scale of its input:
//
//   g1_alphas = S13 * a13     a1_gscale = 1 / a13     g1_scale_c = g1_alphas * a2_gscale, or only
//   g2_alphas = S2 * a2       a2_gscale = 1 / a2                   a2_gscale where nothing gates
//
// Source: weight_layouts 2.5; tests/golden/weight_layouts, nvfp4_scalars.

/// Whose a13 and a2: one for all experts (FlashInfer), or each its own (vllm-cutlass).
enum class InputScales : std::uint8_t { kLargestOfAll, kOfEachExpert };

struct Nvfp4Scalars {
  float gate_up_scale = 1.0F;  // common to gate and up (layout/nvfp4_reconcile.h)
  float down_scale = 1.0F;
  float gate_up_input_scale = 1.0F;
  float down_input_scale = 1.0F;

  float g1_alpha() const noexcept { return gate_up_scale * gate_up_input_scale; }
  float g2_alpha() const noexcept { return down_scale * down_input_scale; }
  float a1_gscale() const noexcept { return 1.0F / gate_up_input_scale; }
  float a2_gscale() const noexcept { return 1.0F / down_input_scale; }
  float g1_scale_c(bool gated) const noexcept {
    return gated ? g1_alpha() * a2_gscale() : a2_gscale();
  }
  /// The same for FP8 experts, which divide instead.
  float fp8_g1_scale_c(bool gated) const noexcept {
    return gated ? g1_alpha() / down_input_scale : 1.0F / down_input_scale;
  }
};

/// Those of expert `expert_idx`. Input scales that the checkpoint does not have are 1.
Nvfp4Scalars nvfp4_scalars(const ExpertsShape& shape, const LayerScalars& scalars,
                           InputScales whose, std::uint64_t expert_idx) noexcept;

}  // namespace lode::targets
