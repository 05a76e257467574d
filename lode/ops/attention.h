#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/ops/rows.h"

namespace lode::ops {

/// How the cache stores keys and values.
enum class KvFormat : std::uint8_t { kF32, kF16 };

constexpr std::size_t bytes_per_number(KvFormat format) noexcept {
  return format == KvFormat::kF32 ? 4 : 2;
}

/// Keys and values of one layer of one sequence. A view.
///
/// Shapes: keys, values [num_kv_heads][capacity][head_dim]; position p lies in slot p mod capacity.
///         Of the two formats one is empty.
struct KvLayer {
  std::span<float> keys;
  std::span<float> values;
  std::span<std::uint16_t> keys_f16;
  std::span<std::uint16_t> values_f16;
  std::size_t capacity = 0;
};

/// Which sequence a row belongs to, and its position there.
struct RowPlace {
  std::uint32_t sequence = 0;
  std::uint32_t position = 0;
};

struct AttentionShape {
  std::size_t num_heads = 0;
  std::size_t num_kv_heads = 0;
  std::size_t head_dim = 0;
  float scale = 1.0F;
  std::uint32_t window_tokens = 0;  // keys a query sees, itself included; 0: all before it
  std::span<const float> sinks;     // [num_heads] or empty: one more logit a head, without a value
};

/// Floats of a thread's tile that `attend` needs.
std::size_t attention_tile_floats(std::size_t num_heads, std::size_t num_kv_heads);

/// Puts one token's key and value heads into its slot.
///
/// Shapes: key, value [num_kv_heads * head_dim].
void store_kv(const Compute& compute, const KvLayer& kv, std::uint32_t position,
              std::span<const float> key, std::span<const float> value,
              std::size_t head_dim) noexcept;

/// Causal attention of rows over the keys of their sequences, which must be in the cache up to and
/// including the row's own.
///
/// Keys are taken in rising order in blocks that begin at multiples of a fixed number of positions;
/// within a block: largest logit, then exponentials, then values, the running sums rescaled between
/// blocks. All of it depends on the row's position and window alone: chunks, company, threads and
/// ring size do not change a bit.
///
/// Shapes: q [num_rows][q.stride], heads side by side; out the same; kv [sequences].
void attend(const Compute& compute, const AttentionShape& shape, std::span<const KvLayer> kv,
            std::span<const RowPlace> places, const Rows& q, const Rows& out) noexcept;

}  // namespace lode::ops
