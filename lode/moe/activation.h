#pragma once

#include <cstddef>
#include <span>

#include "lode/families/model_spec.h"

namespace lode::moe {

/// A gated activation with its numbers. kSilu: g sigmoid(g) u. kGelu: GELU(g) u with erf.
/// kGeluTanh: GELU(g) u with tanh. kSwigluOai: g' = min(g, limit), u' = clamp(u, -limit, limit),
/// (u' + 1) g' sigmoid(alpha g').
struct GatedActivation {
  families::Activation kind = families::Activation::kSilu;
  float alpha = 1.702F;
  float limit = 7.0F;
};

/// out[i] = activation(gate[i], up[i]); out may be gate.
///
/// Shapes: gate, up, out [n].
void activate(const GatedActivation& activation, std::span<const float> gate,
              std::span<const float> up, std::span<float> out) noexcept;

}  // namespace lode::moe
