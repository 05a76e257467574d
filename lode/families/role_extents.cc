#include "lode/families/model_spec.h"

namespace lode::families {

RoleExtents extents(const ModelSpec& spec, Role role) noexcept {
  const std::uint64_t query_rows = std::uint64_t{spec.num_heads} * spec.head_dim;
  const std::uint64_t key_rows = std::uint64_t{spec.num_kv_heads} * spec.head_dim;
  switch (role) {
    case Role::kTokenEmbedding:
    case Role::kOutputHead:
      return {spec.vocab, spec.hidden};
    case Role::kQuery:
      return {query_rows, spec.hidden};
    case Role::kKey:
    case Role::kValue:
      return {key_rows, spec.hidden};
    case Role::kAttentionOutput:
      return {spec.hidden, query_rows};
    case Role::kRouter:
      return {spec.router.num_experts, spec.hidden};
    case Role::kMlpGate:
    case Role::kMlpUp:
      return {spec.intermediate, spec.hidden};
    case Role::kMlpDown:
      return {spec.hidden, spec.intermediate};
    case Role::kExpertGate:
    case Role::kExpertUp:
      return {spec.expert_intermediate, spec.hidden};
    case Role::kExpertDown:
      return {spec.hidden, spec.expert_intermediate};
    case Role::kQueryBias:
      return {query_rows, 0};
    case Role::kKeyBias:
    case Role::kValueBias:
      return {key_rows, 0};
    case Role::kQueryNorm:
    case Role::kKeyNorm:
      return {spec.head_dim, 0};
    case Role::kAttentionSinks:
      return {spec.num_heads, 0};
    case Role::kRouterBias:
    case Role::kRouterSelectionBias:
      return {spec.router.num_experts, 0};
    case Role::kExpertGateBias:
    case Role::kExpertUpBias:
      return {spec.expert_intermediate, 0};
    case Role::kFinalNorm:
    case Role::kAttentionNorm:
    case Role::kAttentionOutputBias:
    case Role::kMlpNorm:
    case Role::kExpertDownBias:
      return {spec.hidden, 0};
  }
  return {};
}

bool has_role(const ModelSpec& spec, Role role, std::uint32_t layer) noexcept {
  const bool moe = layer < spec.layers.size() && spec.layers[layer].moe;
  switch (role) {
    case Role::kOutputHead:
      return !spec.tied_embeddings;
    case Role::kQueryBias:
    case Role::kKeyBias:
    case Role::kValueBias:
      return spec.attention_bias;
    case Role::kAttentionOutputBias:
      return spec.output_bias;
    case Role::kQueryNorm:
    case Role::kKeyNorm:
      return spec.qk_norm;
    case Role::kAttentionSinks:
      return spec.attention_sinks;
    case Role::kRouter:
    case Role::kExpertGate:
    case Role::kExpertUp:
    case Role::kExpertDown:
      return moe;
    case Role::kRouterBias:
      return moe && spec.router_bias;
    case Role::kRouterSelectionBias:
      return moe && spec.router.selection_bias;
    case Role::kExpertGateBias:
    case Role::kExpertUpBias:
    case Role::kExpertDownBias:
      return moe && spec.expert_bias;
    case Role::kMlpGate:
    case Role::kMlpUp:
    case Role::kMlpDown:
      return !moe;
    default:
      return true;
  }
}

}  // namespace lode::families
