#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/checksum.h"
#include "lode/prepared/output_file.h"

namespace lode::prepared {

inline constexpr std::string_view kJournalFile = "journal.bin";
/// Sections are done unit by unit: what a crash costs is one unit and what was under way.
inline constexpr std::uint64_t kUnitBytes = 64ULL << 20;

// journal.bin: 256 bytes of header, then records one behind the other, all little-endian.
//
//   header  "LODEJNL" [8] | u32 version | u32 zero | digest of settings [32] | of sources [32]
//           | of the sources' times [32] | zeros | u32 CRC-32C of all before, at 252
//   chunks  "CHNK" | u32 n | u64 first chunk | u32 CRC-32C [n] | u32 CRC-32C
//   holes   "HOLE" | u32 0 | u64 stage | u32 CRC-32C
//
// The sum of a record goes over the header and the record: one of another journal is none of this.
// "chunks" says that these chunks are on the disk; it is written when they are, and then brought to
// the disk itself. "holes" says that the sources of all stages up to that one may have holes.
// Source: spec loading_memory 5; docs/prepared.md.

/// What a preparation is of: it goes on only with the same.
struct Fingerprint {
  io::Sha256::Digest settings{};
  io::Sha256::Digest sources{};
  io::Sha256::Digest source_times{};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

/// What a journal says.
struct JournalState {
  Fingerprint fingerprint;
  std::vector<std::uint32_t> chunk_crcs;  // of the chunks that are done, from the first on
  std::optional<std::uint64_t> holes_up_to_stage;
  std::uint64_t end_bytes = 0;  // of the last whole record

  friend bool operator==(const JournalState&, const JournalState&) = default;
};

/// Reads as far as records are whole and follow on each other. Nothing where not even the header
/// is: then nothing had been done.
std::optional<JournalState> read_journal(std::span<const std::byte> bytes);

/// A journal that is being written.
class Journal {
 public:
  /// Begins a new one; what was in the file is gone. Room for `num_chunks` sums is taken at once,
  /// so that a full disk does not keep it from saying what was done.
  /// Errors: kIo, kNoSpace.
  static Result<Journal> create(OutputFile file, const Fingerprint& fingerprint,
                                std::uint64_t num_chunks);
  /// Goes on behind the last whole record.
  static Journal resume(OutputFile file, const JournalState& state);

  /// Errors: kIo, kNoSpace.
  Status add_chunks(std::uint64_t first_chunk, std::span<const std::uint32_t> crcs);
  Status add_holes(std::uint64_t stage_idx);

 private:
  Journal(OutputFile file, std::uint32_t header_sum, std::uint64_t end_bytes)
      : file_(std::move(file)), header_sum_(header_sum), end_bytes_(end_bytes) {}
  Status append(std::vector<std::byte> record);

  OutputFile file_;
  std::uint32_t header_sum_ = 0;
  std::uint64_t end_bytes_ = 0;
};

}  // namespace lode::prepared
