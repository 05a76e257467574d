#pragma once

#include <array>
#include <cstdint>

#include "lode/formats/fp8_requantise.h"
#include "lode/targets/experts.h"

namespace lode::targets {

/// FP8 experts with one scale a matrix: kernels know one for gate and up together, the larger, and
/// both halves are requantised to it (both, also where the scales are equal).
/// Source: weight_layouts 3.2.
struct OneScale {
  float scale = 1.0F;                      // a multiplier
  bool changes = false;                    // if not, codes stay what they are
  std::array<formats::CodeMap, 2> maps{};  // of gate's codes and of up's, if they change

  /// Shapes: both [n], codes of half `half`; may be the same bytes.
  void apply(std::uint32_t half, std::span<const std::byte> codes,
             std::span<std::byte> out) const noexcept;
};

/// That of expert `expert_idx`. Nothing changes in a layer that is not gated, nor where gate and up
/// were quantised with one scale from the start (`scalars.one_scale`). A few microseconds: once a
/// `make`, not once a row.
OneScale one_scale(const ExpertsShape& shape, const LayerScalars& scalars, std::uint64_t expert_idx,
                   formats::ScaleRounding rounding = formats::ScaleRounding::kToF16) noexcept;

}  // namespace lode::targets
