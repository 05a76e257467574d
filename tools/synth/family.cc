#include "tools/synth/family.h"

#include <array>

namespace lode::synth {
namespace {

using enum Extent;

constexpr TensorRow kEmbeddingRow{"token_embedding", "model.embed_tokens.weight", kVocab, kHidden,
                                  Kind::kEmbedding};
constexpr TensorRow kInputNorm{"attention_norm", "model.layers.{L}.input_layernorm.weight", kHidden,
                               kOne, Kind::kNorm};
constexpr TensorRow kMlpNorm{"mlp_norm", "model.layers.{L}.post_attention_layernorm.weight",
                             kHidden, kOne, Kind::kNorm};
constexpr TensorRow kFinalNorm{"final_norm", "model.norm.weight", kHidden, kOne, Kind::kNorm};
constexpr TensorRow kHeadRow{"output_head", "lm_head.weight", kVocab, kHidden, Kind::kHead};
constexpr TensorRow kQuery{"query", "model.layers.{L}.self_attn.q_proj.weight", kQueryRows, kHidden,
                           Kind::kDense};
constexpr TensorRow kKey{"key", "model.layers.{L}.self_attn.k_proj.weight", kKeyRows, kHidden,
                         Kind::kDense};
constexpr TensorRow kValue{"value", "model.layers.{L}.self_attn.v_proj.weight", kKeyRows, kHidden,
                           Kind::kDense};
constexpr TensorRow kOutput{"attention_output", "model.layers.{L}.self_attn.o_proj.weight", kHidden,
                            kQueryRows, Kind::kDense};

constexpr std::array kQwen3Moe{
    kEmbeddingRow,
    kInputNorm,
    kQuery,
    kKey,
    kValue,
    kOutput,
    TensorRow{"query_norm", "model.layers.{L}.self_attn.q_norm.weight", kHeadDim, kOne,
              Kind::kNorm},
    TensorRow{"key_norm", "model.layers.{L}.self_attn.k_norm.weight", kHeadDim, kOne, Kind::kNorm},
    kMlpNorm,
    TensorRow{"router", "model.layers.{L}.mlp.gate.weight", kExperts, kHidden, Kind::kRouter},
    kFinalNorm,
    kHeadRow,
};

// OLMoE's norms of query and key span all heads.
constexpr std::array kOlmoe{
    kEmbeddingRow,
    kInputNorm,
    kQuery,
    kKey,
    kValue,
    kOutput,
    TensorRow{"query_norm", "model.layers.{L}.self_attn.q_norm.weight", kQueryRows, kOne,
              Kind::kNorm},
    TensorRow{"key_norm", "model.layers.{L}.self_attn.k_norm.weight", kKeyRows, kOne, Kind::kNorm},
    kMlpNorm,
    TensorRow{"router", "model.layers.{L}.mlp.gate.weight", kExperts, kHidden, Kind::kRouter},
    kFinalNorm,
    kHeadRow,
};

constexpr std::array kMixtral{
    kEmbeddingRow,
    kInputNorm,
    kQuery,
    kKey,
    kValue,
    kOutput,
    kMlpNorm,
    TensorRow{"router", "model.layers.{L}.block_sparse_moe.gate.weight", kExperts, kHidden,
              Kind::kRouter},
    kFinalNorm,
    kHeadRow,
};

constexpr std::array kGptOss{
    kEmbeddingRow,
    kInputNorm,
    kQuery,
    TensorRow{"query_bias", "model.layers.{L}.self_attn.q_proj.bias", kQueryRows, kOne,
              Kind::kBias},
    kKey,
    TensorRow{"key_bias", "model.layers.{L}.self_attn.k_proj.bias", kKeyRows, kOne, Kind::kBias},
    kValue,
    TensorRow{"value_bias", "model.layers.{L}.self_attn.v_proj.bias", kKeyRows, kOne, Kind::kBias},
    kOutput,
    TensorRow{"attention_output_bias", "model.layers.{L}.self_attn.o_proj.bias", kHidden, kOne,
              Kind::kBias},
    TensorRow{"attention_sinks", "model.layers.{L}.self_attn.sinks", kHeads, kOne, Kind::kSinks},
    kMlpNorm,
    TensorRow{"router", "model.layers.{L}.mlp.router.weight", kExperts, kHidden, Kind::kRouter},
    TensorRow{"router_bias", "model.layers.{L}.mlp.router.bias", kExperts, kOne, Kind::kBias},
    kFinalNorm,
    kHeadRow,
};

constexpr ExpertNames kMlpExperts{
    "model.layers.{L}.mlp.experts.{E}.gate_proj", "model.layers.{L}.mlp.experts.{E}.up_proj",
    "model.layers.{L}.mlp.experts.{E}.down_proj", "model.layers.{L}.mlp.experts.gate_up_proj",
    "model.layers.{L}.mlp.experts.down_proj",     false};

constexpr ExpertNames kMixtralExperts{"model.layers.{L}.block_sparse_moe.experts.{E}.w1",
                                      "model.layers.{L}.block_sparse_moe.experts.{E}.w3",
                                      "model.layers.{L}.block_sparse_moe.experts.{E}.w2",
                                      "model.layers.{L}.mlp.experts.gate_up_proj",
                                      "model.layers.{L}.mlp.experts.down_proj",
                                      false};

constexpr ExpertNames interleaved(ExpertNames names) {
  names.interleaved = true;
  return names;
}

json::Value integer(std::uint64_t value) { return json::Value(value); }

json::Object qwen3_moe_config(const ModelShape& shape) {
  return {{"moe_intermediate_size", integer(shape.intermediate)},
          {"num_experts", integer(shape.experts)},
          {"head_dim", integer(shape.head_dim)},
          {"norm_topk_prob", true},
          {"decoder_sparse_step", 1},
          {"mlp_only_layers", json::Array{}},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000.0},
          {"attention_bias", false}};
}

json::Object olmoe_config(const ModelShape& shape) {
  return {{"num_experts", integer(shape.experts)},
          {"norm_topk_prob", false},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"attention_bias", false},
          {"clip_qkv", nullptr}};
}

json::Object mixtral_config(const ModelShape& shape) {
  return {{"num_local_experts", integer(shape.experts)},
          {"head_dim", integer(shape.head_dim)},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 1000000.0},
          {"sliding_window", nullptr}};
}

json::Object gpt_oss_config(const ModelShape& shape) {
  json::Array layer_types;
  for (std::uint64_t layer = 0; layer < shape.layers; ++layer) {
    layer_types.emplace_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  return {{"num_local_experts", integer(shape.experts)},
          {"experts_per_token", integer(shape.top_k)},
          {"head_dim", integer(shape.head_dim)},
          {"layer_types", std::move(layer_types)},
          {"sliding_window", 128},
          {"initial_context_length", 4096},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 150000.0},
          {"rope_scaling", json::object({{"rope_type", "yarn"},
                                         {"factor", 32.0},
                                         {"beta_fast", 32.0},
                                         {"beta_slow", 1.0},
                                         {"original_max_position_embeddings", 4096},
                                         {"truncate", false}})},
          {"swiglu_limit", 7.0},
          {"attention_bias", true}};
}

constexpr std::array<Family, 4> kFamilies{{
    {"qwen3_moe", "Qwen3MoeForCausalLM", kQwen3Moe, kMlpExperts, qwen3_moe_config},
    {"gpt_oss", "GptOssForCausalLM", kGptOss, interleaved(kMlpExperts), gpt_oss_config},
    {"mixtral", "MixtralForCausalLM", kMixtral, kMixtralExperts, mixtral_config},
    {"olmoe", "OlmoeForCausalLM", kOlmoe, kMlpExperts, olmoe_config},
}};

void replace(std::string& text, std::string_view what, const std::string& with) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* family_by_name(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::string filled(std::string_view pattern, std::uint64_t layer, std::uint64_t expert) {
  std::string text(pattern);
  replace(text, "{L}", std::to_string(layer));
  replace(text, "{E}", std::to_string(expert));
  return text;
}

json::Object config_of(const Family& family, const ModelShape& shape) {
  json::Object config{{"architectures", json::Array{family.architecture}},
                      {"model_type", family.name},
                      {"hidden_size", integer(shape.hidden)},
                      {"intermediate_size", integer(shape.intermediate)},
                      {"num_hidden_layers", integer(shape.layers)},
                      {"num_attention_heads", integer(shape.heads)},
                      {"num_key_value_heads", integer(shape.kv_heads)},
                      {"num_experts_per_tok", integer(shape.top_k)},
                      {"vocab_size", integer(shape.vocab)},
                      {"max_position_embeddings", integer(shape.max_positions)},
                      {"hidden_act", "silu"},
                      {"tie_word_embeddings", shape.tied},
                      {"torch_dtype", "bfloat16"},
                      {"bos_token_id", nullptr},
                      {"eos_token_id", integer(shape.vocab - 1)}};
  for (json::Member& member : family.config(shape)) config.push_back(std::move(member));
  return config;
}

}  // namespace lode::synth
