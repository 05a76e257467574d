#include "lode/io/system_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lode::io {
namespace {

constexpr std::size_t kMostBytesACall = 1U << 30;

// -errno where a call said -1.
std::int64_t answer(std::int64_t returned) noexcept { return returned < 0 ? -errno : returned; }
int answer_of(int returned) noexcept { return returned < 0 ? -errno : returned; }

std::int64_t to_ns(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
}

FileStatus status_from(const struct stat& from) {
  return {.device = from.st_dev,
          .inode = from.st_ino,
          .bytes = static_cast<std::uint64_t>(from.st_size),
          .disk_bytes = static_cast<std::uint64_t>(from.st_blocks) * 512,
          .links = from.st_nlink,
          .mtime_ns = to_ns(from.st_mtim),
          .ctime_ns = to_ns(from.st_ctim),
          .regular = S_ISREG(from.st_mode)};
}

}  // namespace

int SystemCalls::open(const std::string& path, int flags, unsigned mode) {
  return answer_of(::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, static_cast<mode_t>(mode)));
}

int SystemCalls::close(int descriptor) { return answer_of(::close(descriptor)); }

std::int64_t SystemCalls::pread(int descriptor, std::span<std::byte> out,
                                std::uint64_t offset_bytes) {
  return answer(::pread(descriptor, out.data(), std::min(out.size(), kMostBytesACall),
                        static_cast<off_t>(offset_bytes)));
}

std::int64_t SystemCalls::pwrite(int descriptor, std::span<const std::byte> bytes,
                                 std::uint64_t offset_bytes) {
  return answer(::pwrite(descriptor, bytes.data(), std::min(bytes.size(), kMostBytesACall),
                         static_cast<off_t>(offset_bytes)));
}

int SystemCalls::status(int descriptor, FileStatus& status) {
  struct stat from {};
  const int answered = answer_of(::fstat(descriptor, &from));
  if (answered >= 0) status = status_from(from);
  return answered;
}

int SystemCalls::status_of(const std::string& path, FileStatus& status) {
  struct stat from {};
  const int answered = answer_of(::stat(path.c_str(), &from));
  if (answered >= 0) status = status_from(from);
  return answered;
}

int SystemCalls::direct_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx from {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &from) < 0) return -errno;
  if ((from.stx_mask & STATX_DIOALIGN) == 0) return -ENOTSUP;
  return static_cast<int>(std::max(from.stx_dio_mem_align, from.stx_dio_offset_align));
#else
  static_cast<void>(descriptor);
  return -ENOTSUP;
#endif
}

std::int64_t SystemCalls::file_system(const std::string& path) {
  struct statfs from {};
  if (::statfs(path.c_str(), &from) < 0) return -errno;
  return static_cast<std::uint32_t>(from.f_type);
}

std::int64_t SystemCalls::free_bytes(const std::string& folder) {
  struct statvfs from {};
  if (::statvfs(folder.c_str(), &from) < 0) return -errno;
  return static_cast<std::int64_t>(from.f_bavail * from.f_frsize);
}

int SystemCalls::advise_random(int descriptor) {
  return -::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
}

int SystemCalls::drop_cache(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes) {
  return -::posix_fadvise(descriptor, static_cast<off_t>(offset_bytes), static_cast<off_t>(bytes),
                          POSIX_FADV_DONTNEED);
}

int SystemCalls::allocate(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes) {
  return answer_of(
      ::fallocate(descriptor, 0, static_cast<off_t>(offset_bytes), static_cast<off_t>(bytes)));
}

int SystemCalls::punch_hole(int descriptor, std::uint64_t offset_bytes, std::uint64_t bytes) {
  return answer_of(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               static_cast<off_t>(offset_bytes), static_cast<off_t>(bytes)));
}

int SystemCalls::truncate(int descriptor, std::uint64_t bytes) {
  return answer_of(::ftruncate(descriptor, static_cast<off_t>(bytes)));
}

int SystemCalls::start_writing_out(int descriptor, std::uint64_t offset_bytes,
                                   std::uint64_t bytes) {
  return answer_of(::sync_file_range(descriptor, static_cast<off_t>(offset_bytes),
                                     static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE));
}

int SystemCalls::sync_data(int descriptor) { return answer_of(::fdatasync(descriptor)); }
int SystemCalls::sync(int descriptor) { return answer_of(::fsync(descriptor)); }

int SystemCalls::rename(const std::string& from, const std::string& to) {
  return answer_of(::rename(from.c_str(), to.c_str()));
}
int SystemCalls::unlink(const std::string& path) { return answer_of(::unlink(path.c_str())); }
int SystemCalls::make_folder(const std::string& path) {
  return answer_of(::mkdir(path.c_str(), 0777));
}

int SystemCalls::allow_uring() { return 0; }

int SystemCalls::uring_entered(int answer) { return answer; }
int SystemCalls::uring_result(int result) { return result; }

SystemCalls& system_calls() noexcept {
  static SystemCalls calls;
  return calls;
}

Error system_error(std::string_view path, std::string_view doing, std::int64_t answer) {
  const int number = static_cast<int>(-answer);
  const bool full = number == ENOSPC || number == EDQUOT;
  return {.code = full ? Code::kNoSpace : Code::kIo,
          .thing = std::string(path),
          .wanted = "to " + std::string(doing),
          .found = std::strerror(number)};
}

}  // namespace lode::io
