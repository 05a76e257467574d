#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/formats/format.h"

namespace lode::checkpoint {

/// One tensor of a checkpoint, as its shard's header states it. The views point into the
/// RecordArena of whoever made the record.
struct TensorRecord {
  std::string_view name;
  std::string_view dtype;                 // as the header spells it
  std::optional<formats::Format> format;  // none: a dtype that we do not know
  std::uint32_t shard_id = 0;             // position in TensorIndex::shards()
  std::span<const std::uint64_t> dims;    // in elements of `format`; empty: a scalar
  std::uint64_t file_offset = 0;          // of its first byte in the shard's file
  std::uint64_t bytes = 0;

  bool is(formats::Format wanted) const noexcept { return format == wanted; }
};

/// Elements of the tensor; 1 for a scalar. Cannot overflow for a record that a parser accepted.
std::uint64_t num_elements(const TensorRecord& tensor) noexcept;

/// "BF16 [96, 128]": for messages.
std::string describe(const TensorRecord& tensor);

/// "[96, 128]".
std::string dims_text(std::span<const std::uint64_t> dims);

/// A name out of a file, fit for a terminal: control characters become '?', long names are cut.
std::string printable(std::string_view name);

/// Holds what records point to: names one after another in pages, each distinct shape and dtype
/// once. Addresses stay when the arena moves.
/// Memory: the names' bytes in pages of 64 KiB, the distinct shapes, nothing a tensor.
class RecordArena {
 public:
  RecordArena() = default;
  RecordArena(RecordArena&&) = default;
  RecordArena& operator=(RecordArena&&) = default;

  std::string_view keep_name(std::string_view name);
  std::string_view keep_dtype(std::string_view dtype);
  std::span<const std::uint64_t> keep_dims(std::span<const std::uint64_t> dims);

  /// Bytes held.
  std::size_t held_bytes() const noexcept { return held_bytes_; }

 private:
  std::vector<std::unique_ptr<char[]>> pages_;
  std::span<char> free_;
  std::set<std::string, std::less<>> dtypes_;
  std::set<std::vector<std::uint64_t>> shapes_;
  std::size_t held_bytes_ = 0;
};

}  // namespace lode::checkpoint
