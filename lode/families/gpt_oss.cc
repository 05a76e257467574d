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
    ModulePattern{Role::kAttentionSinks, "layers.{layer}.self_attn.sinks"},
    ModulePattern{Role::kMlpNorm, "layers.{layer}.post_attention_layernorm"},
    ModulePattern{Role::kRouter, "layers.{layer}.mlp.router"},
    ModulePattern{Role::kRouterBias, "layers.{layer}.mlp.router"},
    ModulePattern{Role::kExpertGate, "layers.{layer}.mlp.experts.{expert}.gate_proj"},
    ModulePattern{Role::kExpertUp, "layers.{layer}.mlp.experts.{expert}.up_proj"},
    ModulePattern{Role::kExpertDown, "layers.{layer}.mlp.experts.{expert}.down_proj"},
    ModulePattern{Role::kExpertGateBias, "layers.{layer}.mlp.experts.{expert}.gate_proj"},
    ModulePattern{Role::kExpertUpBias, "layers.{layer}.mlp.experts.{expert}.up_proj"},
    ModulePattern{Role::kExpertDownBias, "layers.{layer}.mlp.experts.{expert}.down_proj"},
};

Status read_windows(const HfConfig& config, ModelSpec& spec) {
  LODE_TRY(const std::uint32_t window, config.get_extent({"sliding_window"}, 128));
  LODE_TRY(const auto types, config.get_strings({"layer_types"}));
  if (!types.empty() && types.size() != spec.num_layers) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "layer_types",
                 .wanted = std::to_string(spec.num_layers) + " entries",
                 .found = std::to_string(types.size()),
                 .where = "config.json"};
  }
  for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    // without the list: every other layer slides, the first one does
    bool slides = layer % 2 == 0;
    if (!types.empty()) {
      slides = types[layer] == "sliding_attention";
      if (!slides && types[layer] != "full_attention") {
        return Error{.code = Code::kUnsupported,
                     .thing = "layer_types[" + std::to_string(layer) + "]",
                     .wanted = "sliding_attention or full_attention",
                     .found = types[layer],
                     .where = "config.json"};
      }
    }
    spec.layers[layer] = {.moe = true, .window_tokens = slides ? window : 0};
  }
  return {};
}

// The reference takes a config without rope settings for one of the released models.
Result<RopeSpec> read_own_rope(const HfConfig& config, const ModelSpec& spec) {
  if (config.has({"rope_scaling", "rope_parameters"})) {
    return read_rope(config, spec, 150000.0, {"full_attention", "sliding_attention"});
  }
  RopeSpec released{.kind = RopeKind::kYarn,
                    .rotary_dim = spec.head_dim,
                    .factor = 32.0,
                    .original_max_positions = 4096.0,
                    .truncate = false};
  LODE_TRY(const float theta, read_positive(config, "rope_theta", 150000.0));
  released.theta = theta;
  return released;
}

// Where not said otherwise, defaults are those of transformers 5.23, GptOssConfig. Sizes have none
// here: a config that leaves them out is not trusted. Not read: hidden_act (the activation is
// fixed) and initial_context_length (families.md, gpt_oss).
Result<ModelSpec> read_spec(const HfConfig& config) {
  LODE_TRY(ModelSpec spec, read_sizes(config, "gpt_oss"));
  LODE_TRY_STATUS(read_experts(config, spec));
  LODE_TRY(spec.expert_intermediate, config.get_extent({"intermediate_size"}));
  LODE_TRY(spec.norm_eps, read_positive(config, "rms_norm_eps", 1e-5));
  LODE_TRY_STATUS(read_windows(config, spec));
  LODE_TRY(spec.attention_bias, config.get_bool({"attention_bias"}, true));
  spec.output_bias = spec.attention_bias;
  spec.attention_sinks = true;
  spec.router_bias = true;
  spec.expert_bias = true;
  spec.router.score = Score::kTopKSoftmax;
  spec.activation = Activation::kSwigluOai;
  LODE_TRY(spec.activation_alpha, read_positive(config, "swiglu_alpha", 1.702));
  LODE_TRY(spec.activation_limit, read_positive(config, "swiglu_limit", 7.0));
  LODE_TRY(spec.rope, read_own_rope(config, spec));
  LODE_TRY_STATUS(check_spec(spec));
  return spec;
}

}  // namespace

const Family& gpt_oss() noexcept {
  static constexpr Family kFamily{
      .model_type = "gpt_oss",
      .architecture = "GptOssForCausalLM",
      .read_spec = read_spec,
      .modules = kModules,
      .stacked = {.gate_up = "mlp.experts.gate_up_proj",
                  .down = "mlp.experts.down_proj",
                  .transposed = true,
                  .interleaved = true},
  };
  return kFamily;
}

}  // namespace lode::families
