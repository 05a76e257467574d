#include "lode/model/layer_weights.h"

#include "lode/base/check.h"

namespace lode::model {
namespace {

using families::ModelSpec;
using families::Role;

/// The roles of one layer.
struct Roles {
  const loader::WeightSet* weights;
  std::uint32_t layer;

  std::span<const float> numbers(Role role) const {
    return tensor::floats(weights->layer_weight(layer, role));
  }
  std::span<const float> numbers(Role role, bool wanted, std::size_t count) const {
    if (!wanted) return {};
    const std::span<const float> found = numbers(role);
    LODE_CHECK(found.size() == count, "a vector of another length than the spec says");
    return found;
  }
  ops::Matrix matrix(Role role, std::size_t rows, std::size_t k) const {
    const ops::Matrix found = ops::matrix(weights->layer_weight(layer, role));
    LODE_CHECK(found.rows == rows && found.k == k, "a matrix of another shape than the spec says");
    return found;
  }
};

moe::GatedActivation activation_of(const ModelSpec& spec) {
  return {spec.activation, spec.activation_alpha, spec.activation_limit};
}

void read_attention(const ModelSpec& spec, const Roles& roles, LayerWeights& out) {
  const std::size_t hidden = spec.hidden;
  const std::size_t head = spec.head_dim;
  const std::size_t query_width = spec.num_heads * head;
  const std::size_t key_width = spec.num_kv_heads * head;
  out.attention_norm = {roles.numbers(Role::kAttentionNorm, true, hidden), spec.norm_eps};
  out.query_norm = {roles.numbers(Role::kQueryNorm, spec.qk_norm, head), spec.norm_eps};
  out.key_norm = {roles.numbers(Role::kKeyNorm, spec.qk_norm, head), spec.norm_eps};
  out.query = roles.matrix(Role::kQuery, query_width, hidden);
  out.key = roles.matrix(Role::kKey, key_width, hidden);
  out.value = roles.matrix(Role::kValue, key_width, hidden);
  out.output = roles.matrix(Role::kAttentionOutput, hidden, query_width);
  out.query_bias = roles.numbers(Role::kQueryBias, spec.attention_bias, query_width);
  out.key_bias = roles.numbers(Role::kKeyBias, spec.attention_bias, key_width);
  out.value_bias = roles.numbers(Role::kValueBias, spec.attention_bias, key_width);
  out.output_bias = roles.numbers(Role::kAttentionOutputBias, spec.output_bias, hidden);
  out.attention = {spec.num_heads,
                   spec.num_kv_heads,
                   head,
                   spec.attention_scale,
                   spec.layers[roles.layer].window_tokens,
                   roles.numbers(Role::kAttentionSinks, spec.attention_sinks, spec.num_heads)};
}

void read_moe(const ModelSpec& spec, const Roles& roles, std::uint64_t num_records,
              LayerWeights& out) {
  const std::size_t experts = spec.router.num_experts;
  const loader::ExpertBank& bank = roles.weights->experts(roles.layer);
  LODE_CHECK(bank.num_experts == num_records && bank.record.hidden == spec.hidden &&
                 bank.record.intermediate == spec.expert_intermediate &&
                 bank.record.bias == spec.expert_bias &&
                 bank.bytes.size() >= num_records * bank.record.record_bytes,
             "a bank of other experts than the spec says");
  out.moe.router = spec.router;
  out.moe.router_weight = roles.numbers(Role::kRouter, true, experts * spec.hidden);
  out.moe.router_bias = roles.numbers(Role::kRouterBias, spec.router_bias, experts);
  out.moe.selection_bias =
      roles.numbers(Role::kRouterSelectionBias, spec.router.selection_bias, experts);
  out.moe.record = bank.record;
  out.moe.experts = bank.bytes;
  out.moe.activation = activation_of(spec);
}

void read_dense(const ModelSpec& spec, const Roles& roles, LayerWeights& out) {
  out.dense.mlp.gate_up = ops::gate_up(roles.weights->layer_weight(roles.layer, Role::kMlpGate));
  out.dense.mlp.down = roles.matrix(Role::kMlpDown, spec.hidden, spec.intermediate);
  LODE_CHECK(out.dense.mlp.gate_up.gate.rows == spec.intermediate &&
                 out.dense.mlp.gate_up.gate.k == spec.hidden,
             "a dense MLP of another shape than the spec says");
  out.dense.activation = activation_of(spec);
}

}  // namespace

LayerWeights layer_weights(const ModelSpec& spec, const loader::WeightSet& weights,
                           std::uint32_t layer, std::uint64_t num_records) {
  const Roles roles{&weights, layer};
  LayerWeights out;
  read_attention(spec, roles, out);
  out.mlp_norm = {roles.numbers(Role::kMlpNorm, true, spec.hidden), spec.norm_eps};
  out.is_moe = spec.layers[layer].moe;
  if (out.is_moe) {
    read_moe(spec, roles, num_records, out);
  } else {
    read_dense(spec, roles, out);
  }
  return out;
}

}  // namespace lode::model
