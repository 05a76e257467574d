#include "lode/targets/fp8_tensor.h"

#include <algorithm>
#include <array>

namespace lode::targets {

void OneScale::apply(std::uint32_t half, std::span<const std::byte> codes,
                     std::span<std::byte> out) const noexcept {
  if (changes) {
    formats::map_codes(maps[half], codes.data(), codes.size(), out.data());
  } else if (codes.data() != out.data()) {
    std::ranges::copy(codes, out.begin());
  }
}

OneScale one_scale(const ExpertsShape& shape, const LayerScalars& scalars, std::uint64_t expert_idx,
                   formats::ScaleRounding rounding) noexcept {
  const float gate = scalars.gate_scale[expert_idx];
  OneScale one{.scale = gate};
  if (!shape.gated || scalars.one_scale) return one;
  const std::array<float, 2> both{gate, scalars.up_scale[expert_idx]};
  one.scale = formats::largest_scale(both);
  one.changes = true;
  for (std::size_t half = 0; half < 2; ++half) {
    one.maps[half] = formats::requantise_map(both[half], one.scale, rounding);
  }
  return one;
}

}  // namespace lode::targets
