#pragma once

#include <cstdint>

#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"

namespace lode::formats {

/// What a block's codes are multiplied by. Formed first, in fp32, and rounded once: then the
/// product with a code is rounded once more, and results equal the producers' bit for bit.
/// Source: ModelOpt's nvfp4_tensor.py and compressed-tensors' fp4 helpers do the same.
LODE_ALWAYS_INLINE float nvfp4_multiplier(std::uint8_t scale, float tensor_scale) noexcept {
  return decode_e4m3(scale) * tensor_scale;
}

/// The same where the scale of the matrix is a divisor (compressed-tensors' weight_global_scale).
LODE_ALWAYS_INLINE float nvfp4_divided_multiplier(std::uint8_t scale, float divisor) noexcept {
  return decode_e4m3(scale) / divisor;
}

/// MX formats have nothing above the block.
LODE_ALWAYS_INLINE float mx_multiplier(std::uint8_t scale) noexcept { return decode_e8m0(scale); }

}  // namespace lode::formats
