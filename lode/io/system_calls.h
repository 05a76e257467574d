#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lode/base/result.h"

namespace lode::io {

/// What a file is: enough to tell it from another one, and from itself before a change.
struct FileStatus {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint64_t disk_bytes = 0;  // that it takes there: holes do not count
  std::uint64_t links = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  bool regular = false;
};

/// Every call by which this room asks the system, so that tests can answer in its place: short
/// counts, interruptions, refusals and delays. As it stands it asks the system itself. Each call
/// answers with a number >= 0, or with -errno. Thread-safe; a copy in a test must be so too.
class SystemCalls {
 public:
  SystemCalls() = default;
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  virtual ~SystemCalls() = default;

  /// `flags` are open(2)'s; O_CLOEXEC and O_NOCTTY are added.
  virtual int open(const std::string& path, int flags, unsigned mode);
  virtual int close(int descriptor);
  /// One call each: the count may be short.
  virtual std::int64_t pread(int descriptor, std::span<std::byte> out, std::uint64_t offset_bytes);
  virtual std::int64_t pwrite(int descriptor, std::span<const std::byte> bytes,
                              std::uint64_t offset_bytes);

  virtual int status(int descriptor, FileStatus& status);
  virtual int status_of(const std::string& path, FileStatus& status);
  /// What offsets, lengths and addresses of direct reads must be multiples of; 0 where there are no
  /// direct reads of this file, -ENOTSUP where the system does not say.
  virtual int direct_alignment(int descriptor);
  /// The file system's number in statfs(2).
  virtual std::int64_t file_system(const std::string& path);
  /// Bytes that the file system has left for this user.
  virtual std::int64_t free_bytes(const std::string& folder);

  /// No reading ahead of what is asked for.
  virtual int advise_random(int descriptor);
  /// Drops whole clean pages of a range out of the page cache; 0 bytes: to the end.
  virtual int drop_cache(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes);

  /// Blocks for a range, so that writing to it cannot run out of space.
  virtual int allocate(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes);
  /// Gives the blocks of a range back; it reads as zeros, the size stays.
  virtual int punch_hole(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes);
  virtual int truncate(int descriptor, std::uint64_t bytes);
  /// Starts writing a range out without waiting for it (sync_file_range); no promise of safety.
  virtual int start_writing_out(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes);
  virtual int sync_data(int descriptor);
  virtual int sync(int descriptor);

  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int make_folder(const std::string& path);

  /// Asked before a queue of io_uring is set up: -errno refuses in the system's place.
  virtual int allow_uring();
  /// Passes what came of entering a new queue for the first time: -errno refuses it.
  virtual int uring_entered(int answer);
  /// Passes what came of a read by io_uring: a count or -errno.
  virtual int uring_result(int result);
};

/// The system itself; stateless.
SystemCalls& system_calls() noexcept;

/// kIo for -errno `answer` where we wanted to `doing` something with `path`; kNoSpace for a full
/// disk.
Error system_error(std::string_view path, std::string_view doing, std::int64_t answer);

}  // namespace lode::io
