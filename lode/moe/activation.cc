#include "lode/moe/activation.h"

#include <algorithm>
#include <cmath>

#include "lode/ops/exp.h"

namespace lode::moe {
namespace {

template <class Gate>
void multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out,
              const Gate& function) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = function(gate[i]) * up[i];
}

float gelu(float x) noexcept {
  constexpr float kInverseSqrt2 = 0.707106781F;
  return 0.5F * x * (1.0F + std::erf(x * kInverseSqrt2));
}

float gelu_tanh(float x) noexcept {
  constexpr float kSqrt2OverPi = 0.797884561F;
  return 0.5F * x * (1.0F + std::tanh(kSqrt2OverPi * (x + 0.044715F * x * x * x)));
}

void swiglu_oai(const GatedActivation& activation, std::span<const float> gate,
                std::span<const float> up, std::span<float> out) noexcept {
  const float limit = activation.limit;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float u = up[i] > limit ? limit : (up[i] < -limit ? -limit : up[i]);
    out[i] = (u + 1.0F) * (g * ops::sigmoid(activation.alpha * g));
  }
}

}  // namespace

void activate(const GatedActivation& activation, std::span<const float> gate,
              std::span<const float> up, std::span<float> out) noexcept {
  switch (activation.kind) {
    case families::Activation::kSilu:
      return multiply(gate, up, out, [](float g) noexcept { return g * ops::sigmoid(g); });
    case families::Activation::kGelu:
      return multiply(gate, up, out, gelu);
    case families::Activation::kGeluTanh:
      return multiply(gate, up, out, gelu_tanh);
    case families::Activation::kSwigluOai:
      return swiglu_oai(activation, gate, up, out);
  }
}

}  // namespace lode::moe
