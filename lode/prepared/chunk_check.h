#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/checkpoint.h"

namespace lode::prepared {

/// "layer 3" or "experts of layer 3".
std::string section_name(const Index& index, const Section& section);

/// The section that a chunk of Index::chunk_crcs belongs to.
const Section& section_of(const Index& index, std::uint64_t chunk_idx);

/// Chunks side by side that are not what `lode prepare` wrote.
struct ChunkFault {
  std::string file;
  std::uint64_t file_offset_bytes = 0;
  std::uint64_t bytes = 0;
  std::string section;
  std::uint64_t section_offset_bytes = 0;
  std::uint64_t num_chunks = 1;
  std::string found;  // of the first: "sum 01234567, not 89abcdef", or why it could not be read
};
Error to_error(const ChunkFault& fault);

struct ChunkCheck {
  bool sampled = false;        // of each section the first and the last chunk and some between them
  bool keep_in_cache = false;  // for pages that will be mapped next
  std::uint32_t threads = 2;
  std::vector<std::uint32_t> without_files{};  // by number: what lies in them is passed over
};
/// Of the buffer that each thread reads into.
inline constexpr std::uint64_t kCheckBufferBytes = 256 * kKiB;

struct ChunkReport {
  std::vector<ChunkFault> faults;  // in the order of the files; those of neighbours as one
  std::uint64_t num_bad_chunks = 0;
  std::uint64_t num_chunks = 0;  // looked at
  std::uint64_t num_bytes = 0;
};

/// Reads chunks and compares their sums; never through a mapping, so a file that shrinks is a fault
/// and no signal. `buffers` has kCheckBufferBytes for each thread. `progress` may be null.
///
/// Errors: kIo, kSourceChanged where a data file can no longer be opened; kInterrupted. A chunk
/// that
///         cannot be read is a fault.
Result<ChunkReport> check_chunks(const Checkpoint& checkpoint, const ChunkCheck& check,
                                 std::span<std::byte> buffers, loader::Progress* progress = nullptr,
                                 io::SystemCalls& calls = io::system_calls());

}  // namespace lode::prepared
