#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/formats/e4m3.h"

namespace lode::layout {

//   gate: code * (block scale * 0.02)                  code * (block scale * 0.08 = common)
//   up:   code * (block scale * 0.08)   one scale ->   code * (RNE E4M3(scale * 0.02/0.08) * 0.08)
//
// Kernels of fused matrices read one scale for gate and up of an expert. Where a checkpoint has
// two, the larger one stands for both, and the block scales of the other half take up the ratio,
// rounded once to E4M3; the half with the larger scale keeps its bits. Equal scales change nothing.
// Padding: zeros stay zeros.
// Source: weight_layouts 2.5, field report 46 (the engines read up with gate's scale).

/// What one scale for both halves asks of their block scales.
struct CommonScale {
  float scale = 1.0F;
  float gate_ratio = 1.0F;  // block scales of the half times this; 1 leaves their bits alone
  float up_ratio = 1.0F;

  float ratio(std::uint32_t half) const noexcept { return half == 0 ? gate_ratio : up_ratio; }
  /// Whether one of the halves is rounded.
  bool rounds() const noexcept { return gate_ratio != 1.0F || up_ratio != 1.0F; }
};

/// Scales as multipliers, which whoever read them found to be finite and positive.
constexpr CommonScale common_scale(float gate, float up) noexcept {
  if (gate == up) return {gate, 1.0F, 1.0F};
  if (gate > up) return {gate, 1.0F, up / gate};
  return {up, gate / up, 1.0F};
}

/// An E4M3 block scale that has taken up a ratio.
constexpr std::uint8_t rescaled_e4m3(std::uint8_t code, float ratio) noexcept {
  return ratio == 1.0F ? code : formats::encode_e4m3(formats::decode_e4m3(code) * ratio);
}

/// The same over a row of them, where they lie.
/// Shapes:  codes [any].
inline void rescale_e4m3(float ratio, std::span<std::byte> codes) noexcept {
  if (ratio == 1.0F) return;
  for (std::byte& code : codes) {
    code = static_cast<std::byte>(rescaled_e4m3(static_cast<std::uint8_t>(code), ratio));
  }
}

}  // namespace lode::layout
