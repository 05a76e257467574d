#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/memory/buffer.h"
#include "lode/memory/ledger.h"

namespace lode::memory {

/// Bytes [offset_bytes, offset_bytes + bytes) of a file that is open for reading. The descriptor
/// need not stay open once the bytes are mapped.
struct FileRange {
  int descriptor = -1;
  std::uint64_t offset_bytes = 0;  // a multiple of kPageBytes
  std::uint64_t bytes = 0;
  std::string path;  // for messages
};

/// Maps a part of a file, shared and read-only, as a sealed buffer: no second copy, and no write
/// can ever make one. What the ledger is charged is what make_buffer would charge: the pages are
/// page cache that we cause, so they are held.
///
/// The file must be as long as the range; what is cut off it later raises SIGBUS where it is
/// touched (`find_mapped` names the place). `populate` looks without that danger.
///
/// Errors: kOverBudget from the ledger; kSourceChanged where the file is shorter; kIo if the system
///         refuses. Nothing is held then.
Result<Buffer> map_file(Ledger& ledger, Tag tag, const FileRange& range, std::string_view what);

/// Brings every page of a mapped buffer in, now; nothing is touched, so a file that has become
/// shorter is an error and no signal. `name` is for messages.
///
/// Errors: kSourceChanged naming the file where a page cannot be had: cut off, or unreadable;
///         kUnsupported where the system cannot do this (Linux before 5.14).
Status populate(const Buffer& mapped, std::string_view name);

}  // namespace lode::memory
