#include "lode/ops/attention.h"

#include <algorithm>
#include <limits>

#include "lode/ops/exp.h"

namespace lode::ops {
namespace {

constexpr std::uint32_t kKeyBlock = 128;

/// The query heads of one row that share a key head, and where their sums stand.
struct Group {
  const float* q = nullptr;  // [heads][head_dim]
  float* out = nullptr;      // [heads][head_dim]
  std::size_t heads = 0;
  std::size_t head_dim = 0;
  float* logits = nullptr;   // [heads][kKeyBlock]
  float* largest = nullptr;  // [heads]
  float* sum = nullptr;      // [heads]
};

/// One head's stretch of a cache.
struct HeadCache {
  const KvLayer* kv = nullptr;
  std::size_t first = 0;  // of the head, in numbers
  std::size_t head_dim = 0;

  std::size_t slot(std::uint32_t position) const noexcept {
    return first + position % kv->capacity * head_dim;
  }
};

void block_logits(const Compute& compute, const Group& group, const HeadCache& cache,
                  std::uint32_t first, std::uint32_t count, float scale) noexcept {
  const bool is_f16 = cache.kv->keys.empty();
  for (std::uint32_t key = 0; key < count; ++key) {
    const std::size_t slot = cache.slot(first + key);
    for (std::size_t head = 0; head < group.heads; ++head) {
      const float* q = group.q + head * group.head_dim;
      const float dot =
          is_f16 ? compute.table->dot_f16(q, cache.kv->keys_f16.data() + slot, group.head_dim)
                 : compute.table->dot(q, cache.kv->keys.data() + slot, group.head_dim);
      group.logits[head * kKeyBlock + key] = dot * scale;
    }
  }
}

/// Turns a head's logits into weights relative to the largest logit so far.
void block_weights(const Group& group, std::size_t head, std::uint32_t count) noexcept {
  float* logits = group.logits + head * kKeyBlock;
  float largest = group.largest[head];
  for (std::uint32_t key = 0; key < count; ++key) largest = std::max(largest, logits[key]);
  const float shrink = exp(group.largest[head] - largest);
  group.largest[head] = largest;
  for (std::uint32_t key = 0; key < count; ++key) logits[key] = exp(logits[key] - largest);
  float sum = group.sum[head] * shrink;
  for (std::uint32_t key = 0; key < count; ++key) sum += logits[key];
  group.sum[head] = sum;
  if (shrink == 1.0F) return;
  float* out = group.out + head * group.head_dim;
  for (std::size_t i = 0; i < group.head_dim; ++i) out[i] *= shrink;
}

void block_values(const Compute& compute, const Group& group, const HeadCache& cache,
                  std::uint32_t first, std::uint32_t count) noexcept {
  const bool is_f16 = cache.kv->keys.empty();
  for (std::uint32_t key = 0; key < count; ++key) {
    const std::size_t slot = cache.slot(first + key);
    for (std::size_t head = 0; head < group.heads; ++head) {
      const float weight = group.logits[head * kKeyBlock + key];
      float* out = group.out + head * group.head_dim;
      if (is_f16) {
        compute.table->add_scaled_f16(weight, cache.kv->values_f16.data() + slot, group.head_dim,
                                      out);
      } else {
        compute.table->add_scaled(weight, cache.kv->values.data() + slot, group.head_dim, out);
      }
    }
  }
}

void begin(const Group& group, std::span<const float> sinks) noexcept {
  std::fill_n(group.out, group.heads * group.head_dim, 0.0F);
  for (std::size_t head = 0; head < group.heads; ++head) {
    // A sink is a logit that came first: weight 1 relative to itself, and no value.
    group.largest[head] = sinks.empty() ? -std::numeric_limits<float>::max() : sinks[head];
    group.sum[head] = sinks.empty() ? 0.0F : 1.0F;
  }
}

void finish(const Group& group) noexcept {
  for (std::size_t head = 0; head < group.heads; ++head) {
    float* out = group.out + head * group.head_dim;
    for (std::size_t i = 0; i < group.head_dim; ++i) out[i] /= group.sum[head];
  }
}

}  // namespace

std::size_t attention_tile_floats(std::size_t num_heads, std::size_t num_kv_heads) {
  return num_heads / num_kv_heads * (kKeyBlock + 2);
}

void store_kv(const Compute& compute, const KvLayer& kv, std::uint32_t position,
              std::span<const float> key, std::span<const float> value,
              std::size_t head_dim) noexcept {
  const std::size_t num_heads = key.size() / head_dim;
  for (std::size_t head = 0; head < num_heads; ++head) {
    const std::size_t slot = (head * kv.capacity + position % kv.capacity) * head_dim;
    const float* key_head = key.data() + head * head_dim;
    const float* value_head = value.data() + head * head_dim;
    if (kv.keys.empty()) {
      compute.table->to_f16(key_head, head_dim, kv.keys_f16.data() + slot);
      compute.table->to_f16(value_head, head_dim, kv.values_f16.data() + slot);
    } else {
      std::copy_n(key_head, head_dim, kv.keys.data() + slot);
      std::copy_n(value_head, head_dim, kv.values.data() + slot);
    }
  }
}

void attend(const Compute& compute, const AttentionShape& shape, std::span<const KvLayer> kv,
            std::span<const RowPlace> places, const Rows& q, const Rows& out) noexcept {
  const std::size_t heads = shape.num_heads / shape.num_kv_heads;
  const std::size_t tasks = places.size() * shape.num_kv_heads;
  for_each(compute, tasks, [&](std::size_t task, std::size_t thread) noexcept {
    const std::size_t row = task / shape.num_kv_heads;
    const std::size_t kv_head = task % shape.num_kv_heads;
    const RowPlace place = places[row];
    const HeadCache cache{&kv[place.sequence],
                          kv_head * kv[place.sequence].capacity * shape.head_dim, shape.head_dim};
    const std::size_t first_head = kv_head * heads;
    float* tile = compute.tile(thread).data();
    const Group group{q.row(row).data() + first_head * shape.head_dim,
                      out.row(row).data() + first_head * shape.head_dim,
                      heads,
                      shape.head_dim,
                      tile + 2 * heads,
                      tile,
                      tile + heads};
    begin(group, shape.sinks.empty() ? shape.sinks : shape.sinks.subspan(first_head, heads));
    const std::uint32_t end = place.position + 1;
    const std::uint32_t window = shape.window_tokens;
    std::uint32_t first = window != 0 && end > window ? end - window : 0;
    while (first < end) {
      const std::uint32_t next = std::min(end, (first / kKeyBlock + 1) * kKeyBlock);
      block_logits(compute, group, cache, first, next - first, shape.scale);
      for (std::size_t h = 0; h < heads; ++h) block_weights(group, h, next - first);
      block_values(compute, group, cache, first, next - first);
      first = next;
    }
    finish(group);
  });
}

}  // namespace lode::ops
