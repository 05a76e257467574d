#include "lode/families/model_spec.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "lode/base/bytes.h"
#include "lode/families/config_fault.h"

namespace lode::families {
namespace {

// Far above every model there is; products of what passes fit 64 bits, with room for bytes.
constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxHeadDim = 65536;
constexpr std::uint64_t kMaxRows = std::uint64_t{1} << 31;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxLayers = 4096;

struct Limit {
  std::string_view key;
  std::uint64_t value;
  std::uint64_t most;
};

Status check_limits(std::initializer_list<Limit> limits) {
  for (const Limit& limit : limits) {
    if (limit.value == 0 || limit.value > limit.most) {
      return config_fault(limit.key, "1 to " + std::to_string(limit.most),
                          std::to_string(limit.value));
    }
  }
  return {};
}

Status check_experts(const ModelSpec& spec) {
  const bool any_moe = std::any_of(spec.layers.begin(), spec.layers.end(),
                                   [](const LayerSpec& layer) { return layer.moe; });
  if (!any_moe) return {};
  LODE_TRY_STATUS(check_router(spec.router));
  return check_limits({
      {"moe_intermediate_size", spec.expert_intermediate, kMaxExtent},
      {"hidden_size * moe_intermediate_size", std::uint64_t{spec.hidden} * spec.expert_intermediate,
       kMaxElements},
  });
}

}  // namespace

Status check_spec(const ModelSpec& spec) {
  const std::uint64_t query_rows = std::uint64_t{spec.num_heads} * spec.head_dim;
  LODE_TRY_STATUS(check_limits({
      {"num_hidden_layers", spec.num_layers, kMaxLayers},
      {"hidden_size", spec.hidden, kMaxExtent},
      {"vocab_size", spec.vocab, kMaxExtent},
      {"num_attention_heads", spec.num_heads, kMaxExtent},
      {"num_key_value_heads", spec.num_kv_heads, spec.num_heads},
      {"head_dim", spec.head_dim, kMaxHeadDim},
      {"num_attention_heads * head_dim", query_rows, kMaxRows},
      {"hidden_size * num_attention_heads * head_dim", spec.hidden * query_rows, kMaxElements},
      {"hidden_size * vocab_size", std::uint64_t{spec.hidden} * spec.vocab, kMaxElements},
      {"max_position_embeddings", spec.max_positions, kMaxRows},
  }));
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return config_fault("num_key_value_heads",
                        "a divisor of num_attention_heads " + std::to_string(spec.num_heads),
                        std::to_string(spec.num_kv_heads));
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
