#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lode/base/result.h"

namespace lode::io {

/// A file to read, and what it was when its header was read.
struct SourceFile {
  std::string path;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
};

/// Bytes [offset, offset + out.size()) of a file, wanted in `out`, which must live until the
/// completion with this ticket has been given out.
struct ReadRequest {
  std::uint32_t file_id = 0;
  std::uint64_t offset_bytes = 0;
  std::span<std::byte> out;
  std::uint64_t ticket = 0;
};

struct ReadCompletion {
  std::uint64_t ticket = 0;
  Status status;
};

/// Reads many ranges of a set of files at once. One caller submits and waits; the work behind it is
/// the engine's. What was read does not stay in the page cache.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;

  /// Never blocks for the disk. Zero bytes complete too.
  virtual void submit(const ReadRequest& request) = 0;

  /// Blocks until a request is complete; there must be one under way. Complete means every byte is
  /// there, or its status says why not: kSourceChanged where the file ends before, kIo where the
  /// system refuses, naming file and offset.
  virtual ReadCompletion wait() = 0;

  /// Drops what is left of the files in the page cache and looks whether they are still the files
  /// that were opened. No request may be under way.
  ///
  /// Errors: kSourceChanged naming the file.
  virtual Status finish() = 0;

  /// Bytes read so far, a number a file.
  virtual std::vector<std::uint64_t> bytes_read() const = 0;
};

/// An engine of `num_threads` threads that call pread: works everywhere.
///
/// Errors: kSourceChanged where a file is no longer the one that is meant; kIo; kOther where the
/// system gives no threads.
/// Memory: a stack of 256 KiB a thread, a record for each request under way.
Result<std::unique_ptr<ReadEngine>> make_threads_engine(std::span<const SourceFile> files,
                                                        std::uint32_t num_threads);

}  // namespace lode::io
