#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/safetensors.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {

/// One file of a checkpoint.
struct Shard {
  std::string name;  // "model-00001-of-00002.safetensors"
  std::string path;
  FileIdentity identity;
  std::uint64_t data_offset = 0;
};

/// Every tensor of a checkpoint by name, from the headers of all its shards. The headers are the
/// truth; the index file only says which shards there are and which copy of a tensor counts.
/// Memory: 72 bytes a tensor, and its name; 180,000 tensors take less than 32 MiB.
class TensorIndex {
 public:
  TensorIndex() = default;  // of no tensors

  /// The tensor, or null. The pointer lives as long as the index, and survives its move.
  const TensorRecord* find(std::string_view name) const noexcept;

  /// The tensor, which must be there and have a dtype that we know.
  ///
  /// Errors: kInvalidSource naming the tensor and the nearest name that there is; kUnsupported
  /// naming tensor and dtype.
  Result<const TensorRecord*> want(std::string_view name) const;

  /// All tensors, in the order of their names (by bytes).
  std::span<const TensorRecord> tensors() const noexcept { return tensors_; }

  /// Those whose names begin with `prefix`.
  std::span<const TensorRecord> with_prefix(std::string_view prefix) const noexcept;

  std::span<const Shard> shards() const noexcept { return shards_; }
  const Shard& shard_of(const TensorRecord& tensor) const noexcept {
    return shards_[tensor.shard_id];
  }

  /// Where the index file and the headers differ, and files that were left aside: for people.
  std::span<const std::string> notes() const noexcept { return notes_; }

  /// The name most like this one, or "" if none is near. Bounded work; for hints.
  std::string nearest_name(std::string_view name) const;

  /// Bytes of all tensors together.
  std::uint64_t tensor_bytes() const noexcept;

  /// Bytes that the index itself holds.
  std::size_t held_bytes() const noexcept;

 private:
  friend class IndexBuilder;

  RecordArena arena_;
  std::vector<TensorRecord> tensors_;
  std::vector<Shard> shards_;
  std::vector<std::string> notes_;
};

/// Opens a checkpoint folder: reads the index file if there is one, and the headers of all shards.
/// Only the top level counts. Without an index: model.safetensors, or else all *.safetensors but
/// consolidated*. No tensor's bytes are read.
///
/// Errors: kInvalidSource naming folder, shard or tensor: no weights, a shard that is missing,
/// damaged, cut short or oddly named, a tensor that the index promises and no shard has or that
/// two shards have and the index does not settle; kIo.
Result<TensorIndex> open_index(const std::filesystem::path& folder);

/// One safetensors file by itself as an index.
///
/// Errors: as open_index.
Result<TensorIndex> open_file(const std::filesystem::path& file);

/// Opens the shard of a tensor and reads the tensor's bytes. For tools and tests; the loader has
/// its own way.
///
/// Errors: kSourceChanged where the shard is no longer the file that was indexed; kIo.
/// Memory: the tensor's bytes.
Result<std::vector<std::byte>> read_tensor(const TensorIndex& index, const TensorRecord& tensor);

}  // namespace lode::checkpoint
