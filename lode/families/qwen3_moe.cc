#include <algorithm>
#include <array>
#include <string>

#include "lode/families/all.h"
#include "lode/families/spec_reader.h"

namespace lode::families {
namespace {

using checkpoint::HfConfig;

constexpr std::array kModules{
    ModulePattern{Role::kTokenEmbedding, "embed_tokens"},
    ModulePattern{Role::kFinalNorm, "norm"},
    ModulePattern{Role::kOutputHead, "lm_head"},
    ModulePattern{Role::kAttentionNorm, "layers.{layer}.input_layernorm"},
    ModulePattern{Role::kQuery, "layers.{layer}.self_attn.q_proj"},
    ModulePattern{Role::kKey, "layers.{layer}.self_attn.k_proj"},
    ModulePattern{Role::kValue, "layers.{layer}.self_attn.v_proj"},
    ModulePattern{Role::kAttentionOutput, "layers.{layer}.self_attn.o_proj"},
    ModulePattern{Role::kQueryBias, "layers.{layer}.self_attn.q_proj"},
    ModulePattern{Role::kKeyBias, "layers.{layer}.self_attn.k_proj"},
    ModulePattern{Role::kValueBias, "layers.{layer}.self_attn.v_proj"},
    ModulePattern{Role::kAttentionOutputBias, "layers.{layer}.self_attn.o_proj"},
    ModulePattern{Role::kQueryNorm, "layers.{layer}.self_attn.q_norm"},
    ModulePattern{Role::kKeyNorm, "layers.{layer}.self_attn.k_norm"},
    ModulePattern{Role::kMlpNorm, "layers.{layer}.post_attention_layernorm"},
    ModulePattern{Role::kRouter, "layers.{layer}.mlp.gate"},
    ModulePattern{Role::kMlpGate, "layers.{layer}.mlp.gate_proj"},
    ModulePattern{Role::kMlpUp, "layers.{layer}.mlp.up_proj"},
    ModulePattern{Role::kMlpDown, "layers.{layer}.mlp.down_proj"},
    ModulePattern{Role::kExpertGate, "layers.{layer}.mlp.experts.{expert}.gate_proj"},
    ModulePattern{Role::kExpertUp, "layers.{layer}.mlp.experts.{expert}.up_proj"},
    ModulePattern{Role::kExpertDown, "layers.{layer}.mlp.experts.{expert}.down_proj"},
};

// A layer is dense if mlp_only_layers names it or (L + 1) % decoder_sparse_step != 0.
Status read_layers(const HfConfig& config, ModelSpec& spec) {
  LODE_TRY(const auto dense_layers, config.get_ints({"mlp_only_layers"}));  // default: none
  LODE_TRY(const std::uint32_t step, config.get_extent({"decoder_sparse_step"}, 1));
  LODE_TRY(const bool slides, config.get_bool({"use_sliding_window"}, false));
  std::uint32_t window = 0;
  if (slides) {
    // null and absent mean different things to transformers: all keys, and 4096
    LODE_TRY(window, config.get_extent({"sliding_window"}));
  }
  for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool named =
        std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
    spec.layers[layer] = {.moe = !named && (layer + 1) % step == 0, .window_tokens = window};
  }
  return {};
}

// Where not said otherwise, defaults are those of transformers 5.23, Qwen3MoeConfig. Sizes have
// none here: a config that leaves them out is not trusted.
Result<ModelSpec> read_spec(const HfConfig& config) {
  LODE_TRY(ModelSpec spec, read_sizes(config, "qwen3_moe"));
  LODE_TRY_STATUS(read_experts(config, spec));
  LODE_TRY(spec.norm_eps, read_positive(config, "rms_norm_eps", 1e-6));
  LODE_TRY_STATUS(read_layers(config, spec));
  LODE_TRY(spec.expert_intermediate, config.get_extent({"moe_intermediate_size"}));
  const bool any_dense = std::any_of(spec.layers.begin(), spec.layers.end(),
                                     [](const LayerSpec& layer) { return !layer.moe; });
  if (any_dense) {
    LODE_TRY(spec.intermediate, config.get_extent({"intermediate_size"}));
  }
  LODE_TRY(spec.router.renormalise, config.get_bool({"norm_topk_prob"}, false));
  LODE_TRY(spec.activation, read_activation(config));
  LODE_TRY(spec.attention_bias, config.get_bool({"attention_bias"}, false));
  spec.output_bias = spec.attention_bias;  // families.md 1: q, k, v and o
  spec.qk_norm = true;                     // no key; every model has it
  // theta: PreTrainedConfig.default_theta
  LODE_TRY(spec.rope, read_rope(config, spec, 10000.0, {"full_attention"}));
  LODE_TRY_STATUS(check_spec(spec));
  return spec;
}

}  // namespace

const Family& qwen3_moe() noexcept {
  static constexpr Family kFamily{
      .model_type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .read_spec = read_spec,
      .modules = kModules,
      .stacked = {.gate_up = "mlp.experts.gate_up_proj", .down = "mlp.experts.down_proj"},
  };
  return kFamily;
}

}  // namespace lode::families
