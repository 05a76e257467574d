#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_record.h"
#include "lode/json/json.h"

namespace lode::checkpoint {

inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";

/// model.safetensors.index.json: which shards there are, and which holds what. A hint, except that
/// it settles which copy of a tensor counts.
struct IndexFile {
  struct Entry {
    std::string_view tensor;  // into the arena
    std::uint32_t shard = 0;  // position in shard_names
  };

  /// The shard that the index gives a tensor, or none.
  std::optional<std::uint32_t> shard_of(std::string_view tensor) const noexcept;

  std::vector<std::string> shard_names;  // plain basenames, in the order of the file
  std::vector<Entry> entries;            // in the order of tensor names
  std::optional<std::uint64_t> total_bytes;
  RecordArena arena;
};

/// Errors: kInvalidSource for what is no index, and for a shard name that is no plain basename
/// ending in ".safetensors"; naming tensor and shard.
/// Memory: the tensors' names and 24 bytes for each.
Result<IndexFile> parse_index_file(json::Source& source);
Result<IndexFile> parse_index_file(std::string_view text);

/// Reads `folder`/model.safetensors.index.json; none where there is no such file.
///
/// Errors: as parse_index_file, with the file; kIo.
Result<std::optional<IndexFile>> read_index_file(const std::filesystem::path& folder);

}  // namespace lode::checkpoint
