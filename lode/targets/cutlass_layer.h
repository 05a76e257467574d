#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lode/targets/cutlass_part.h"
#include "lode/targets/nvfp4_scalars.h"

namespace lode::targets {

/// Which single numbers stand beside the weights.
enum class ScalarSet : std::uint8_t {
  kNone,
  kNvfp4,        // scales, input scales, alphas, reciprocals
  kNvfp4Trtllm,  // and g1_scale_c
  kNvfp4Folded,  // scales are 1: the block scales have them
  kFp8Tensor,
  kFp8TensorTrtllm,
};

/// How kernels want the experts of a layer: a choice on each axis.
struct LayerForm {
  // Padded; of the intermediate size each half by itself.
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;
  layout::GateUpOrder order = layout::GateUpOrder::kGateThenUp;
  layout::RowShuffle shuffle = layout::RowShuffle::kNone;  // of all matrices and their scales
  PartTile codes = PartTile::kRows;
  bool flat_blocks = false;  // BlockMajorK under the shape of the matrix: BF16 since vLLM 0.33
  PartNumbers code_numbers = PartNumbers::kKept;  // of gate and up
  PartTile scales = PartTile::kRows;
  layout::ScaleTile scale_tile = layout::kScales128x4;
  layout::Sm90Version sm90 = layout::Sm90Version::kFlashinfer07;
  PartNumbers scale_numbers = PartNumbers::kKept;
  formats::Format scale_dtype = formats::Format::kU8;  // that the engine declares
  std::byte scale_padding{};
  PartNumbers gate_up_bias = PartNumbers::kKept;
  PartNumbers down_bias = PartNumbers::kKept;
  ScalarSet scalars = ScalarSet::kNone;
  InputScales input_scales = InputScales::kLargestOfAll;
};

/// The preparer of a layer in that form, under the names of the engine: w13_weight, w2_weight,
/// w13_weight_scale, ..., w13_bias, w13_weight_scale_2, w13_input_scale, g1_alphas, ...
///
/// Errors: kUnsupported naming a size that blocks, tiles or shuffles do not divide, or that is too
///         large to count.
Result<std::unique_ptr<Preparer>> make_layer_preparer(const ExpertsShape& shape,
                                                      const LayerForm& form);

}  // namespace lode::targets
