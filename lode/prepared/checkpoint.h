#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/read_engine.h"
#include "lode/prepared/format.h"
#include "lode/prepared/manifest.h"

namespace lode::prepared {

/// How much of a prepared checkpoint is looked at before it is trusted.
enum class Verification : std::uint8_t {
  kNone,     // that the parts fit each other: manifest, index, sizes
  kHeader,   // also the sums of the index and of every file that is no weight
  kSampled,  // also the sums of some chunks of each section
  kFull,     // also the sum of every chunk
};
std::string_view name(Verification verification) noexcept;
/// Errors: kUsage for a word that is none.
Result<Verification> parse_verification(std::string_view word);

/// A prepared checkpoint, understood. No weight has been read.
struct Checkpoint {
  std::filesystem::path folder;
  Manifest manifest;
  Index index;
  std::vector<io::SourceFile> files;  // weights-00000.bin, ... as they were when opened

  std::uint64_t data_bytes() const;  // of all sections; holes between them do not count
  std::uint64_t held_bytes() const;  // of this value, for the ledger's metadata
};

/// Whether a folder is a prepared checkpoint, whole or begun.
bool is_prepared(const std::filesystem::path& folder);

/// Opens a prepared checkpoint: reads manifest and index, checks them against each other and
/// against the sizes of the data files; from kHeader on also what has a SHA-256. kSampled and kFull
/// do here what kHeader does: chunks are looked at by `start`.
///
/// Errors: kInvalidSource naming the file for what is damaged, missing or of another size, and for
///         a folder that `lode prepare` has not finished; kLayoutMismatch for another target,
///         layout or version, with the command that prepares it again; kIo.
/// Memory: the index, twice for a moment.
Result<Checkpoint> open(const std::filesystem::path& folder, Verification verification);

// The steps of `open`, for a check that goes on after a fault.

/// Manifest and index, and that they fit each other; no sum of a file is looked at, and `files` is
/// empty. Errors: as open.
Result<Checkpoint> read_head(const std::filesystem::path& folder);

/// Whether the index on disk is the one that the manifest means.
/// Errors: kInvalidSource, kIo.
Status check_root(const Checkpoint& checkpoint);

/// A data file as it is now, whatever its size.
/// Errors: kInvalidSource where it is no file, kIo.
Result<io::SourceFile> find_data_file(const Checkpoint& checkpoint, std::size_t file_idx);

/// Errors: kInvalidSource where a data file is not as long as the manifest says.
Status check_size(const Checkpoint& checkpoint, std::size_t file_idx, const io::SourceFile& file);

/// A file of the folder beside the weights whose SHA-256 is not the manifest's.
/// Errors: kInvalidSource naming it, kIo.
Status check_companion(const std::filesystem::path& folder, const Companion& companion);

}  // namespace lode::prepared
