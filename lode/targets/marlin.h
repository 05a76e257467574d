#pragma once

#include <memory>

#include "lode/base/result.h"
#include "lode/targets/marlin_matrix.h"
#include "lode/targets/preparer.h"

namespace lode::targets {

/// Experts and what the Marlin kernels want of their sizes.
struct MarlinExperts {
  ExpertsShape shape;
  std::uint64_t padded_hidden = 0;
  std::uint64_t padded_intermediate = 0;  // of each half
  bool narrow_activations = false;        // MXFP4 alone
};

/// The sizes to which engines pad experts before these kernels see them: NVFP4 the intermediate
/// size to 64, or to 128 where the hidden size is no multiple of 128; MXFP4 both (256 and 128, when
/// they load them); FP8 and MXFP8 the intermediate size to 64 and whole groups.
///
/// Errors: kUnsupported naming the encoding or a hidden size that the kernels do not take.
/// Source: weight_layouts 1.9, 1.10, 2.8.
Result<MarlinExperts> marlin_experts(const ExpertsShape& shape, bool narrow_activations);

/// Makes the tensors of a layer: w13_weight and w2_weight, their scales, of NVFP4 one more scale of
/// each expert, and biases where the checkpoint has them.
///
/// NVFP4 experts whose gate and up have two scales get the larger one, the block scales of the
/// other half are brought to it (layout/nvfp4_reconcile.h). One power of two for a whole tensor
/// brings its block scales into the kernels' range; it comes from the largest of those that are
/// stored.
///
/// Errors: as MarlinMatrix::make, saying which matrix.
/// Source: weight_layouts 1.9 to 1.11; tests/golden/weight_layouts, *_marlin_moe_*.
Result<std::unique_ptr<Preparer>> make_marlin_preparer(const MarlinExperts& experts);

}  // namespace lode::targets
