#include "lode/targets/nvfp4_scalars.h"

#include <algorithm>

#include "lode/layout/nvfp4_reconcile.h"

namespace lode::targets {

Nvfp4Scalars nvfp4_scalars(const ExpertsShape& shape, const LayerScalars& scalars,
                           InputScales whose, std::uint64_t expert_idx) noexcept {
  const auto of = [&](const std::vector<float>& values) {
    return values.empty() ? 1.0F : values[expert_idx];
  };
  Nvfp4Scalars one{.gate_up_scale = of(scalars.gate_scale), .down_scale = of(scalars.down_scale)};
  if (shape.gated && !scalars.up_scale.empty()) {
    one.gate_up_scale = layout::common_scale(one.gate_up_scale, of(scalars.up_scale)).scale;
  }
  if (!shape.input_scales) return one;
  if (whose == InputScales::kLargestOfAll) {
    one.gate_up_input_scale = scalars.largest_gate_up_input_scale;
    one.down_input_scale = scalars.largest_down_input_scale;
    return one;
  }
  one.gate_up_input_scale = of(scalars.gate_input_scale);
  if (shape.gated && !scalars.up_input_scale.empty()) {
    one.gate_up_input_scale = std::max(one.gate_up_input_scale, of(scalars.up_input_scale));
  }
  one.down_input_scale = of(scalars.down_input_scale);
  return one;
}

}  // namespace lode::targets
