#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/index_file.h"
#include "lode/checkpoint/tensor_index.h"

namespace lode::checkpoint {

/// Puts a TensorIndex together from headers that have been read: the pure half of open_index.
class IndexBuilder {
 public:
  /// The arena that the headers to be added must be parsed into.
  RecordArena& arena() noexcept { return index_.arena_; }

  /// Room for this many tensors, so that growing does not need twice the memory.
  void expect(std::size_t tensors) { index_.tensors_.reserve(tensors); }

  /// Adds the next shard; with an index file, in the order of its shard_names.
  void add(Shard shard, const ShardHeader& header);
  void note(std::string text) { index_.notes_.push_back(std::move(text)); }

  /// Sorts, settles duplicates, compares with what the index file promises (null: there is none).
  ///
  /// Errors: kInvalidSource naming a tensor that two shards hold and nothing settles, or that its
  /// shard lacks.
  Result<TensorIndex> finish(const IndexFile* promised) &&;

 private:
  Status settle_duplicates(const IndexFile* promised);
  Status check_promises(const IndexFile& promised);
  void note_extras(const IndexFile& promised);

  TensorIndex index_;
};

}  // namespace lode::checkpoint
