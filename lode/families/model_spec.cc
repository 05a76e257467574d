#include "lode/families/model_spec.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "lode/base/bytes.h"

namespace lode::families {
namespace {

// Far above every model there is; products of what passes fit 64 bits, with room for bytes.
constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxRows = std::uint64_t{1} << 31;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxLayers = 4096;
constexpr std::uint32_t kMaxExperts = 65536;

Error impossible(std::string_view key, std::string wanted, std::uint64_t found) {
  return Error{.code = Code::kInvalidSource,
               .thing = std::string(key),
               .wanted = std::move(wanted),
               .found = std::to_string(found),
               .where = "config.json"};
}

struct Limit {
  std::string_view key;
  std::uint64_t value;
  std::uint64_t most;
};

Status check_limits(std::initializer_list<Limit> limits) {
  for (const Limit& limit : limits) {
    if (limit.value == 0 || limit.value > limit.most) {
      return impossible(limit.key, "1 to " + std::to_string(limit.most), limit.value);
    }
  }
  return {};
}

Status check_experts(const ModelSpec& spec) {
  const bool any_moe = std::any_of(spec.layers.begin(), spec.layers.end(),
                                   [](const LayerSpec& layer) { return layer.moe; });
  if (!any_moe) return {};
  LODE_TRY_STATUS(check_limits({
      {"num_experts", spec.router.num_experts, kMaxExperts},
      {"num_experts_per_tok", spec.router.top_k, spec.router.num_experts},
      {"moe_intermediate_size", spec.expert_intermediate, kMaxExtent},
      {"hidden_size * moe_intermediate_size", std::uint64_t{spec.hidden} * spec.expert_intermediate,
       kMaxElements},
      {"n_group", spec.router.num_groups, spec.router.num_experts},
      {"topk_group", spec.router.top_k_groups, spec.router.num_groups},
  }));
  if (spec.router.num_experts % spec.router.num_groups != 0) {
    return impossible("n_group", "a divisor of num_experts", spec.router.num_groups);
  }
  const std::uint64_t eligible =
      std::uint64_t{spec.router.num_experts} / spec.router.num_groups * spec.router.top_k_groups;
  if (eligible < spec.router.top_k) {
    return impossible("topk_group", "groups that hold num_experts_per_tok experts",
                      spec.router.top_k_groups);
  }
  return {};
}

}  // namespace

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

Status check_spec(const ModelSpec& spec) {
  const std::uint64_t query_rows = std::uint64_t{spec.num_heads} * spec.head_dim;
  LODE_TRY_STATUS(check_limits({
      {"num_hidden_layers", spec.num_layers, kMaxLayers},
      {"hidden_size", spec.hidden, kMaxExtent},
      {"vocab_size", spec.vocab, kMaxExtent},
      {"num_attention_heads", spec.num_heads, kMaxExtent},
      {"num_key_value_heads", spec.num_kv_heads, spec.num_heads},
      {"head_dim", spec.head_dim, kMaxExtent},
      {"num_attention_heads * head_dim", query_rows, kMaxRows},
      {"hidden_size * num_attention_heads * head_dim", spec.hidden * query_rows, kMaxElements},
      {"hidden_size * vocab_size", std::uint64_t{spec.hidden} * spec.vocab, kMaxElements},
      {"max_position_embeddings", spec.max_positions, kMaxRows},
  }));
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return impossible("num_key_value_heads",
                      "a divisor of num_attention_heads " + std::to_string(spec.num_heads),
                      spec.num_kv_heads);
  }
  const bool any_dense = std::any_of(spec.layers.begin(), spec.layers.end(),
                                     [](const LayerSpec& layer) { return !layer.moe; });
  if (any_dense) {
    LODE_TRY_STATUS(check_limits({
        {"intermediate_size", spec.intermediate, kMaxExtent},
        {"hidden_size * intermediate_size", std::uint64_t{spec.hidden} * spec.intermediate,
         kMaxElements},
    }));
  }
  return check_experts(spec);
}

std::uint64_t kv_cache_bytes(const ModelSpec& spec, std::uint64_t tokens,
                             std::uint32_t bytes_per_number) {
  const std::uint64_t per_token =
      std::uint64_t{2} * spec.num_kv_heads * spec.head_dim * bytes_per_number;
  std::uint64_t total = 0;
  for (const LayerSpec& layer : spec.layers) {
    const std::uint64_t kept =
        layer.window_tokens == 0 ? tokens : std::min<std::uint64_t>(tokens, layer.window_tokens);
    const auto bytes = checked_mul(kept, per_token);
    const auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum) return std::numeric_limits<std::uint64_t>::max();
    total = *sum;
  }
  return total;
}

}  // namespace lode::families
