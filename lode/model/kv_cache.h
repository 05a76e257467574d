#pragma once

#include <cstdint>
#include <vector>

#include "lode/base/result.h"
#include "lode/families/model_spec.h"
#include "lode/memory/buffer.h"
#include "lode/ops/attention.h"

namespace lode::model {

/// How large a sequence's cache is.
struct KvShape {
  std::uint64_t max_tokens = 0;    // of the sequence, prompt and answer
  std::uint32_t chunk_tokens = 1;  // most tokens that one pass adds
  ops::KvFormat format = ops::KvFormat::kF32;
};

/// Slots of one layer. A windowed layer is a ring of window + chunk - 1: a pass writes its keys
/// before it reads any, and its first query still sees the window - 1 keys before it.
std::uint64_t kv_slots(const families::LayerSpec& layer, const KvShape& shape) noexcept;

/// Bytes that a cache reserves under kKvCache, as mapped; the largest number where 64 bits do not
/// hold it. Its page tables are memory::page_table_bytes of that.
std::uint64_t kv_cache_bytes(const families::ModelSpec& spec, const KvShape& shape) noexcept;

/// Keys and values of one sequence. Move-only. Pages are taken from the system when first written,
/// but all are promised by the ledger.
class KvCache {
 public:
  /// Errors: kOverBudget from the ledger, kIo from the system.
  static Result<KvCache> make(memory::Ledger& ledger, const families::ModelSpec& spec,
                              const KvShape& shape);

  const KvShape& shape() const noexcept { return shape_; }
  const ops::KvLayer& layer(std::uint32_t index) const noexcept { return layers_[index]; }

  /// Tokens seen so far: the position of the next one.
  std::uint32_t tokens() const noexcept { return tokens_; }
  std::uint64_t free_tokens() const noexcept { return shape_.max_tokens - tokens_; }
  void advance(std::uint32_t count) noexcept { tokens_ += count; }
  /// Forgets everything; the memory stays.
  void clear() noexcept { tokens_ = 0; }

 private:
  memory::Buffer buffer_;
  KvShape shape_;
  std::vector<ops::KvLayer> layers_;
  std::uint32_t tokens_ = 0;
};

}  // namespace lode::model
