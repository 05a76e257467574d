#include "lode/model/kv_cache.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/memory/carver.h"

namespace lode::model {
namespace {

using families::ModelSpec;

constexpr std::uint64_t kTooMuch = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> numbers_a_slot(const ModelSpec& spec) noexcept {
  return checked_mul(spec.num_kv_heads, spec.head_dim);
}

/// Keys, or values, of one layer: whole lines.
std::optional<std::uint64_t> half_bytes(const ModelSpec& spec, const families::LayerSpec& layer,
                                        const KvShape& shape) noexcept {
  const auto slot = numbers_a_slot(spec);
  const auto numbers = slot ? checked_mul(*slot, kv_slots(layer, shape)) : std::nullopt;
  const auto bytes =
      numbers ? checked_mul(*numbers, ops::bytes_per_number(shape.format)) : std::nullopt;
  const auto padded = bytes ? checked_add(*bytes, memory::Carver::kLineBytes - 1) : std::nullopt;
  if (!padded) return std::nullopt;
  return *padded / memory::Carver::kLineBytes * memory::Carver::kLineBytes;
}

std::optional<std::uint64_t> all_bytes(const ModelSpec& spec, const KvShape& shape) noexcept {
  std::uint64_t total = 0;
  for (const families::LayerSpec& layer : spec.layers) {
    const auto half = half_bytes(spec, layer, shape);
    const auto both = half ? checked_mul(*half, 2) : std::nullopt;
    const auto sum = both ? checked_add(total, *both) : std::nullopt;
    // Room for rounding up to whole huge pages.
    if (!sum || *sum > kTooMuch - memory::kHugePageBytes) return std::nullopt;
    total = *sum;
  }
  return total;
}

ops::KvLayer carve_layer(memory::Carver& carver, const ModelSpec& spec, std::size_t slots,
                         ops::KvFormat format) {
  ops::KvLayer layer;
  layer.capacity = slots;
  const std::size_t numbers = std::size_t{spec.num_kv_heads} * spec.head_dim * slots;
  if (format == ops::KvFormat::kF32) {
    layer.keys = carver.take<float>(numbers);
    layer.values = carver.take<float>(numbers);
  } else {
    layer.keys_f16 = carver.take<std::uint16_t>(numbers);
    layer.values_f16 = carver.take<std::uint16_t>(numbers);
  }
  return layer;
}

}  // namespace

std::uint64_t kv_slots(const families::LayerSpec& layer, const KvShape& shape) noexcept {
  if (layer.window_tokens == 0) return shape.max_tokens;
  const std::uint64_t ring = std::uint64_t{layer.window_tokens} + shape.chunk_tokens - 1;
  return std::min(shape.max_tokens, ring);
}

std::uint64_t kv_cache_bytes(const ModelSpec& spec, const KvShape& shape) noexcept {
  const auto bytes = all_bytes(spec, shape);
  return bytes ? memory::mapped_bytes(*bytes) : kTooMuch;
}

Result<KvCache> KvCache::make(memory::Ledger& ledger, const ModelSpec& spec, const KvShape& shape) {
  const auto bytes = all_bytes(spec, shape);
  if (!bytes || shape.max_tokens > std::numeric_limits<std::uint32_t>::max()) {
    return Error{.code = Code::kOverBudget,
                 .thing = "keys and values of the context",
                 .wanted = "a number of tokens that 32 bits count",
                 .found = std::to_string(shape.max_tokens)};
  }
  KvCache cache;
  cache.shape_ = shape;
  LODE_TRY(cache.buffer_, memory::make_buffer(ledger, memory::Tag::kKvCache, *bytes, "KV cache"));
  memory::Carver carver(cache.buffer_.mutate());
  for (const families::LayerSpec& layer : spec.layers) {
    cache.layers_.push_back(carve_layer(carver, spec, kv_slots(layer, shape), shape.format));
  }
  return cache;
}

}  // namespace lode::model
