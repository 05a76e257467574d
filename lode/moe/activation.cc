#include "lode/moe/activation.h"

#include <algorithm>
#include <cmath>

#include "lode/ops/exp.h"

namespace lode::moe {
namespace {

using families::Activation;

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

float silu(float x) noexcept { return x * ops::sigmoid(x); }

float relu2(float x) noexcept {
  const float positive = x < 0.0F ? 0.0F : x;
  return positive * positive;
}

template <class Function>
void apply(std::span<const float> in, std::span<float> out, const Function& function) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = function(in[i]);
}

float at_most(float x, float limit) noexcept { return x > limit ? limit : x; }

float within(float x, float limit) noexcept { return x < -limit ? -limit : at_most(x, limit); }

void swiglu_oai(const GatedActivation& activation, std::span<const float> gate,
                std::span<const float> up, std::span<float> out) noexcept {
  const float limit = activation.limit;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float g = at_most(gate[i], limit);
    const float u = within(up[i], limit);
    out[i] = (u + activation.beta) * (g * ops::sigmoid(activation.alpha * g));
  }
}

void clamped_silu(const GatedActivation& activation, std::span<const float> gate,
                  std::span<const float> up, std::span<float> out) noexcept {
  const float limit = activation.limit;
  const bool first = activation.kind == Activation::kSiluClamped;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float g = first ? silu(at_most(gate[i], limit)) : at_most(silu(gate[i]), limit);
    out[i] = g * within(up[i], limit);
  }
}

void situ(const GatedActivation& activation, std::span<const float> gate, std::span<const float> up,
          std::span<float> out) noexcept {
  const float beta = activation.beta;
  const float up_beta = activation.up_beta;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float u = up_beta == 0.0F ? up[i] : up_beta * std::tanh(up[i] / up_beta);
    out[i] = beta * std::tanh(gate[i] / beta) * ops::sigmoid(gate[i]) * u;
  }
}

}  // namespace

bool is_gated(Activation kind) noexcept {
  return kind != Activation::kPlainRelu2 && kind != Activation::kPlainSilu &&
         kind != Activation::kPlainGelu && kind != Activation::kPlainGeluTanh;
}

void activate(const GatedActivation& activation, std::span<const float> gate,
              std::span<const float> up, std::span<float> out) noexcept {
  switch (activation.kind) {
    case Activation::kSilu:
      return multiply(gate, up, out, [](float g) noexcept { return silu(g); });
    case Activation::kGelu:
      return multiply(gate, up, out, gelu);
    case Activation::kGeluTanh:
      return multiply(gate, up, out, gelu_tanh);
    case Activation::kSwigluOai:
      return swiglu_oai(activation, gate, up, out);
    case Activation::kSiluClamped:
    case Activation::kSwigluStep:
      return clamped_silu(activation, gate, up, out);
    case Activation::kSitu:
      return situ(activation, gate, up, out);
    case Activation::kPlainRelu2:
      return apply(gate, out, relu2);
    case Activation::kPlainSilu:
      return apply(gate, out, silu);
    case Activation::kPlainGelu:
      return apply(gate, out, gelu);
    case Activation::kPlainGeluTanh:
      return apply(gate, out, gelu_tanh);
  }
}

}  // namespace lode::moe
