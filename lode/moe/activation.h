#pragma once

#include <cstddef>
#include <span>

#include "lode/families/model_spec.h"

namespace lode::moe {

/// An activation with its numbers; g and u are the gate and up products, g' = min(g, limit) and
/// u' = clamp(u, -limit, limit). The gate has no lower clamp; a NaN stays one.
///
/// - kSilu: g sigmoid(g) u. kGelu: GELU(g) u with erf. kGeluTanh: GELU(g) u with tanh.
/// - kSwigluOai: (u' + beta) g' sigmoid(alpha g').
/// - kSiluClamped: g' sigmoid(g') u'. kSwigluStep: min(g sigmoid(g), limit) u'.
/// - kSitu: beta tanh(g / beta) sigmoid(g) v, v = up_beta tanh(u / up_beta), or u if up_beta is 0.
/// - kPlainRelu2: max(g, 0)^2. kPlainSilu, kPlainGelu, kPlainGeluTanh: as named, without u.
struct GatedActivation {
  families::Activation kind = families::Activation::kSilu;
  float alpha = 1.702F;
  float limit = 7.0F;
  float beta = 1.0F;
  float up_beta = 0.0F;
};

/// Whether it reads an up product.
bool is_gated(families::Activation kind) noexcept;

/// out[i] = activation(gate[i], up[i]); out may be gate.
///
/// Shapes: gate, up, out [n]; up is not read, and may be empty, where it is not gated.
void activate(const GatedActivation& activation, std::span<const float> gate,
              std::span<const float> up, std::span<float> out) noexcept;

}  // namespace lode::moe
