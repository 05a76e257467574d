#pragma once

#include <cmath>
#include <vector>

#include "lode/moe/test_layer.h"

// For tests only: a MoE layer by its formulas in f64, each number with a bound of what f32 may
// differ by. Routing is as the layer's scratch says; the router has tests of its own.

namespace lode::moe::test {

/// A number and how far from it f32 may be.
struct Bounded {
  double value = 0.0;
  double error = 0.0;
};
inline constexpr double kUnit = 0x1p-24;  // half a last place of f32, relative

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// Source: spec moe_runner_eplb 3.3.
inline double activated(const GatedActivation& activation, double gate, double up) {
  using families::Activation;
  const double limit = activation.limit, beta = activation.beta, lb = activation.up_beta;
  const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  switch (activation.kind) {
    case Activation::kSilu:
      return gate * sigmoid(gate) * up;
    case Activation::kGelu:
      return 0.5 * gate * std::erfc(-gate / std::sqrt(2.0)) * up;
    case Activation::kGeluTanh:
      return gelu_tanh(gate) * up;
    case Activation::kSwigluOai:
      return (u + beta) * g * sigmoid(double{activation.alpha} * g);
    case Activation::kSiluClamped:
      return g * sigmoid(g) * u;
    case Activation::kSwigluStep:
      return std::min(gate * sigmoid(gate), limit) * u;
    case Activation::kSitu:
      return beta * std::tanh(gate / beta) * sigmoid(gate) *
             (lb == 0.0 ? up : lb * std::tanh(up / lb));
    case Activation::kPlainRelu2:
      return std::max(gate, 0.0) * std::max(gate, 0.0);
    case Activation::kPlainSilu:
      return gate * sigmoid(gate);
    case Activation::kPlainGelu:
      return 0.5 * gate * std::erfc(-gate / std::sqrt(2.0));
    case Activation::kPlainGeluTanh:
      return gelu_tanh(gate);
  }
  return 0.0;
}

/// Row `row` of a matrix times x, plus a bias. n terms in any order, two roundings more a term for
/// a weight with two scales: sum_error(n + 3) of the magnitudes, and what x itself is off.
inline Bounded product(const std::vector<float>& weights, std::size_t row,
                       const std::vector<Bounded>& x, const std::vector<float>& bias) {
  Bounded out;
  double magnitude = 0.0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double weight = weights[row * x.size() + k];
    out.value += weight * x[k].value;
    out.error += std::abs(weight) * x[k].error;
    magnitude += std::abs(weight) * (std::abs(x[k].value) + x[k].error);
  }
  if (!bias.empty()) {
    out.value += bias[row];
    magnitude += std::abs(bias[row]);
  }
  out.error += ops::sum_error(x.size() + 3) * magnitude;
  return out;
}

/// The activation of numbers that may be off: as far as it goes at the corners, a tenth more for
/// its curve between them; and a dozen roundings of its own, of factors up to these.
inline Bounded activated(const GatedActivation& activation, Bounded gate, Bounded up) {
  Bounded out{activated(activation, gate.value, up.value), 0.0};
  for (const double g : {gate.value - gate.error, gate.value + gate.error}) {
    for (const double u : {up.value - up.error, up.value + up.error}) {
      out.error = std::max(out.error, std::abs(activated(activation, g, u) - out.value));
    }
  }
  const double wide = std::max(std::abs(up.value), std::abs(gate.value)) + 2.0;
  out.error = 1.1 * out.error + 12.0 * kUnit * (std::abs(gate.value) + 1.0) * wide;
  return out;
}

/// One MLP of one row.
inline std::vector<Bounded> mlp(const MlpNumbers& numbers, const GatedActivation& activation,
                                const std::vector<Bounded>& x) {
  std::vector<Bounded> inner(numbers.down.size() / x.size()), out(x.size());
  const bool gated = is_gated(activation.kind);
  for (std::size_t i = 0; i < inner.size(); ++i) {
    const Bounded up = gated ? product(numbers.up, i, x, numbers.up_bias) : Bounded{};
    inner[i] = activated(activation, product(numbers.gate, i, x, numbers.gate_bias), up);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = product(numbers.down, i, inner, numbers.down_bias);
  }
  return out;
}

/// A sum in f32: each addition rounds what is there by then.
class Sums {
 public:
  explicit Sums(const std::vector<float>& start) {
    for (const float value : start) sums_.push_back({value, 0.0});
  }
  void add(Bounded weight, const std::vector<Bounded>& terms) {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const double term = weight.value * terms[i].value;
      const double error = std::abs(weight.value) * terms[i].error +
                           weight.error * (std::abs(terms[i].value) + terms[i].error);
      sums_[i].value += term;
      sums_[i].error += error + kUnit * (std::abs(term) + error);
      sums_[i].error += kUnit * (std::abs(sums_[i].value) + sums_[i].error);
    }
  }
  const std::vector<Bounded>& all() const { return sums_; }

 private:
  std::vector<Bounded> sums_;
};

/// One token of the test through the whole layer.
inline std::vector<Bounded> by_formula(const Layer& layer, const MoeScratch& routing,
                                       std::size_t token) {
  const LayerShape& shape = layer.shape();
  const std::size_t top_k = shape.router.top_k;
  std::vector<Bounded> x;
  for (const float value : input_row(shape.hidden, token, kInputSeed)) x.push_back({value, 0.0});
  Sums sums(input_row(shape.hidden, token, kStartSeed));
  for (std::size_t column = 0; column < top_k; ++column) {
    const std::int32_t id = routing.ids[token * top_k + column];
    if (id < 0) continue;
    const double weight = routing.weights[token * top_k + column];
    const MlpNumbers& numbers = layer.expert(static_cast<std::size_t>(id));
    if (!shape.router.weight_on_input) {
      sums.add({weight, 0.0}, mlp(numbers, shape.activation, x));
      continue;
    }
    std::vector<Bounded> scaled;
    for (const Bounded& number : x) {
      scaled.push_back({weight * number.value, kUnit * std::abs(weight * number.value)});
    }
    sums.add({1.0, 0.0}, mlp(numbers, shape.activation, scaled));
  }
  if (shape.router.num_zero_experts != 0) sums.add({routing.zero_weights[token], 0.0}, x);
  if (shape.shared == 0) return sums.all();
  Bounded weight{1.0, 0.0};
  if (shape.shared_gate) {
    const std::span<const float> gate = (*layer).shared.gate;
    const Bounded logit = product({gate.begin(), gate.end()}, 0, x, {});
    weight = {sigmoid(logit.value), 0.25 * logit.error + 4.0 * kUnit};
  }
  sums.add(weight, mlp(layer.shared(), shape.activation, x));
  return sums.all();
}

}  // namespace lode::moe::test
