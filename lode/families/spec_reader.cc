#include "lode/families/spec_reader.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "lode/families/config_fault.h"

namespace lode::families {
Result<float> read_positive(const checkpoint::HfConfig& config, std::string_view key,
                            double fallback) {
  LODE_TRY(const double value, config.get_float({key}, fallback));
  const auto single = static_cast<float>(value);
  if (!std::isfinite(single) || !(single > 0.0F)) {
    return config_fault(key, "a finite number above 0", std::to_string(value));
  }
  return single;
}

Result<ModelSpec> read_sizes(const checkpoint::HfConfig& config, std::string_view family) {
  constexpr std::uint32_t kMaxLayers = 4096;  // `layers` is made before check_spec sees it
  ModelSpec spec;
  spec.family = family;
  LODE_TRY(spec.num_layers, config.get_extent({"num_hidden_layers"}));
  if (spec.num_layers > kMaxLayers) {
    return config_fault("num_hidden_layers", "at most 4096", std::to_string(spec.num_layers));
  }
  LODE_TRY(spec.hidden, config.get_extent({"hidden_size"}));
  LODE_TRY(spec.vocab, config.get_extent({"vocab_size"}));
  LODE_TRY(spec.num_heads, config.get_extent({"num_attention_heads"}));
  // transformers PreTrainedConfig: as many as attention heads unless stated
  LODE_TRY(spec.num_kv_heads, config.get_extent({"num_key_value_heads"}, spec.num_heads));
  if (config.has({"head_dim"})) {
    LODE_TRY(spec.head_dim, config.get_extent({"head_dim"}));
  } else {
    if (spec.hidden % spec.num_heads != 0) {
      return config_fault("head_dim",
                          "stated, as hidden_size is no multiple of num_attention_heads", "absent");
    }
    spec.head_dim = spec.hidden / spec.num_heads;
  }
  LODE_TRY(spec.max_positions, config.get_extent({"max_position_embeddings"}));
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  // transformers PreTrainedConfig of both families: false
  LODE_TRY(spec.tied_embeddings, config.get_bool({"tie_word_embeddings"}, false));
  spec.layers.resize(spec.num_layers);
  return spec;
}

Status read_experts(const checkpoint::HfConfig& config, ModelSpec& spec) {
  LODE_TRY(spec.router.num_experts, config.get_extent({"num_local_experts", "num_experts",
                                                       "n_routed_experts", "moe_num_experts"}));
  LODE_TRY(spec.router.top_k,
           config.get_extent({"num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k",
                              "moe_top_k", "top_k_experts"}));
  return {};
}

Result<Activation> read_activation(const checkpoint::HfConfig& config) {
  LODE_TRY(const std::string text, config.get_string({"hidden_act"}, "silu"));
  if (text == "silu" || text == "swish") return Activation::kSilu;
  if (text == "gelu") return Activation::kGelu;
  if (text == "gelu_pytorch_tanh" || text == "gelu_new") return Activation::kGeluTanh;
  return Error{.code = Code::kUnsupported,
               .thing = "hidden_act",
               .wanted = "silu, gelu or gelu_pytorch_tanh",
               .found = text,
               .where = "config.json"};
}

}  // namespace lode::families
