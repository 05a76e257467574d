#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {

/// Limits on what a header may make us hold. A file that needs more is refused.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensorsPerShard = 500'000;
inline constexpr std::size_t kMaxRank = 32;
inline constexpr std::uint64_t kMaxDimension = std::uint64_t{1} << 48;

/// What the header of one safetensors file says, checked: the tensors cover the data without gap
/// or overlap and end where the file ends; each has the bytes that its shape and dtype need. Only
/// the size of a tensor of unknown dtype is taken on trust (it still may not overlap).
struct ShardHeader {
  std::uint64_t data_offset = 0;      // of the first data byte in the file
  std::vector<TensorRecord> tensors;  // in the order of their bytes; views into the arena
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Reads the header of a file of `file_bytes` bytes out of its first bytes, `prefix`, which must
/// reach to the end of the header (8 bytes and what they announce). Touches no file.
///
/// Errors: kInvalidSource naming the tensor where one is to blame; `where` is for the caller.
/// Memory: names and records, at most about twice the header's bytes; `arena` keeps the names.
Result<ShardHeader> parse_header(std::span<const std::byte> prefix, std::uint64_t file_bytes,
                                 RecordArena& arena);

/// The same from an open file, read in pieces of 256 KiB; nothing beyond the header is read.
///
/// Errors: as parse_header with the file in `where`; kIo where the system refuses to read;
/// kSourceChanged where the file ends before the size it had when it was opened.
/// Memory: as parse_header and one piece.
Result<ShardHeader> read_header(const InputFile& file, RecordArena& arena);

}  // namespace lode::checkpoint
