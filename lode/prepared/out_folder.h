#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"
#include "lode/prepared/journal.h"
#include "lode/prepared/manifest.h"
#include "lode/prepared/output_file.h"

namespace lode::prepared {

/// A folder as it is before anything is written to it.
struct OutState {
  std::optional<JournalState> journal;  // of an earlier run
  std::uint64_t data_disk_bytes = 0;    // that its data files take
};

/// Names in a folder; none where there is no folder.
/// Errors: kUsage where something else is there; kIo.
Result<std::vector<std::string>> names_in(const std::filesystem::path& folder);

/// Looks at a folder that may be prepared into; writes nothing.
/// Errors: kUsage where it holds something that is not of a preparation; kIo.
Result<OutState> look_at_out(io::SystemCalls& calls, const std::filesystem::path& out, bool force);

/// The folder itself, or what of its path there is.
std::filesystem::path nearest_folder(const std::filesystem::path& out);

/// A folder that we have taken to write to: nobody else can while `journal` is open.
struct OutFolder {
  OutputFile journal;                 // open and locked
  std::optional<JournalState> state;  // of an earlier run
  bool is_new = false;                // there was no journal

  /// Makes the folder where there is none.
  /// Errors: kUsage where it holds something that is not of a preparation; kIo where another
  ///         preparation is at work there; kNoSpace.
  static Result<OutFolder> take(io::SystemCalls& calls, const std::filesystem::path& out,
                                bool force);
};

/// Errors: kUsage where `out` is no name of a folder: empty, or what is there is none; where it is
///         the source's folder or lies in it.
Status check_out(const std::filesystem::path& source, const std::filesystem::path& out);

/// The manifest of a folder that is finished; `damaged_is_none` is for who will replace it.
/// Errors: those of decode_manifest; kIo.
Result<std::optional<Manifest>> read_manifest(const std::filesystem::path& out,
                                              bool damaged_is_none);

/// Errors: kUsage or kSourceChanged where a journal is of another preparation.
Status check_same(const JournalState& state, const Fingerprint& now, const std::string& out);

/// Removes what a preparation left, the manifest first; the journal stays.
/// Errors: kIo.
Status clear_folder(io::SystemCalls& calls, const std::filesystem::path& out);

}  // namespace lode::prepared
