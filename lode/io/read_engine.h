#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"

namespace lode::io {

/// A file to read, and what it was when its header was read.
struct SourceFile {
  std::string path;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  bool times_count = true;  // false: they change by what we do ourselves
};

/// What direct reads are made of: offsets, lengths and addresses are multiples of it.
inline constexpr std::uint64_t kBlockBytes = 4096;

/// Bytes [offset, offset + out.size()) of a file, wanted in `out`, which must live until the
/// completion with this ticket has been given out.
///
/// Past the page cache only whole blocks can be read, to whole blocks of memory. So that can be
/// done where `out` lies as far behind a block's beginning as `offset_bytes` does, and either its
/// ends are those of blocks or `owns_blocks` says that whatever else is in its first and last block
/// of memory may be overwritten. Other requests go through the page cache.
struct ReadRequest {
  std::uint32_t file_id = 0;
  std::uint64_t offset_bytes = 0;
  std::span<std::byte> out;
  std::uint64_t ticket = 0;
  bool owns_blocks = false;
};

struct ReadCompletion {
  std::uint64_t ticket = 0;
  Status status;
};

/// Reads many ranges of a set of files at once. One caller submits and waits; the work behind it is
/// the engine's. The page cache is left as it was found: pages that were there stay, what the reads
/// brought goes.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;

  /// Never blocks for the disk. Zero bytes complete too.
  virtual void submit(const ReadRequest& request) = 0;

  /// Blocks until a request is complete; there must be one under way. Complete means every byte is
  /// there, or its status says why not: kSourceChanged where the file ends before, kIo where the
  /// system refuses, naming file and offset.
  virtual ReadCompletion wait() = 0;

  /// Looks whether the files are still those that were opened. No request may be under way.
  ///
  /// Errors: kSourceChanged naming the file.
  virtual Status finish() = 0;

  /// Bytes read so far, a number a file.
  virtual std::vector<std::uint64_t> bytes_read() const = 0;

  /// How it reads and why, for people: "uring, direct, 16 reads of 1 MiB at once; ...".
  virtual std::string description() const { return {}; }
};

/// By which calls files are read. The bytes are the same.
enum class IoKind : std::uint8_t {
  kAuto,      // what the files and the system make best
  kUring,     // io_uring, past the page cache
  kThreads,   // threads with pread, past the page cache where pages are not in it
  kBuffered,  // threads with pread through the page cache, dropped behind
};
std::string_view name(IoKind kind) noexcept;
/// Errors: kUsage for a word that is no kind.
Result<IoKind> parse_io_kind(std::string_view word);

struct ReadPolicy {
  IoKind kind = IoKind::kAuto;
  std::uint32_t num_threads = 4;                        // of the engines that have some
  std::uint64_t most_bytes_at_once = 16 * 1024 * 1024;  // that the caller has under way
  bool try_depths = true;  // uring: find out how many reads at once are best; else 8 of 2 MiB
};

/// Threads that keep a file system busy which is far away.
inline constexpr std::uint32_t kNetworkThreads = 16;
/// Whether the first of the files is on a file system of another machine.
bool on_network(std::span<const SourceFile> files, SystemCalls& calls = system_calls());

/// An engine as `policy` says; `description` tells what kAuto chose.
///
/// Errors: kSourceChanged where a file is no longer the one that is meant; kIo; kUnsupported where
///         kUring is asked for and the system refuses it; kOther where it gives no threads.
/// Memory: a stack of 256 KiB a thread; a record for each request under way.
Result<std::unique_ptr<ReadEngine>> make_read_engine(std::span<const SourceFile> files,
                                                     const ReadPolicy& policy,
                                                     SystemCalls& calls = system_calls());

}  // namespace lode::io
