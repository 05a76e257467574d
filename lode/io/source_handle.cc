#include "lode/io/source_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/io/system_calls.h"

namespace lode::io {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kMostBytesACall = 1U << 30;

std::int64_t to_ns(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
}

Error changed(const std::string& path, std::string found) {
  return {.code = Code::kSourceChanged,
          .thing = path,
          .wanted = "the file that was opened, unchanged",
          .found = std::move(found),
          .hint = "load again when nothing writes to the checkpoint"};
}

Status compare(const SourceFile& file, const struct stat& status) {
  if (status.st_dev != file.device || status.st_ino != file.inode) {
    return changed(file.path, "another file of that name");
  }
  if (static_cast<std::uint64_t>(status.st_size) != file.bytes) {
    return changed(file.path, fmt::format("{} bytes, not {}", status.st_size, file.bytes));
  }
  if (to_ns(status.st_mtim) != file.mtime_ns || to_ns(status.st_ctim) != file.ctime_ns) {
    return changed(file.path, "a newer time of change");
  }
  return {};
}

}  // namespace

SourceHandle::SourceHandle(SourceHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), file_(std::move(other.file_)) {}

SourceHandle::~SourceHandle() {
  if (descriptor_ < 0) return;
  drop_pages();
  ::close(descriptor_);
}

Result<SourceHandle> SourceHandle::open(const SourceFile& file) {
  // Non-blocking, so that a pipe put in place of a shard cannot hold us up.
  const int descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return changed(file.path, "nothing of that name");
    return system_error(file.path, "open", -errno);
  }
  SourceHandle handle(descriptor, file);
  LODE_TRY_STATUS(handle.check_unchanged());
  // Reads are whole ring slots already: reading ahead would only fill the page cache.
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  return handle;
}

Status SourceHandle::read_into(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t want = std::min(out.size() - done, kMostBytesACall);
    const auto got =
        ::pread(descriptor_, out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return at(fmt::format("offset {}", offset + done), system_error(file_.path, "read", -errno));
    }
    if (got == 0) return changed(file_.path, fmt::format("its end at byte {}", offset + done));
    done += static_cast<std::size_t>(got);
  }
  // Whole pages: those at the edges were brought by this read as well.
  const std::uint64_t begin = offset / kPageBytes * kPageBytes;
  const std::uint64_t end = align_up(offset + out.size(), kPageBytes);
  ::posix_fadvise(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                  POSIX_FADV_DONTNEED);
  return {};
}

void SourceHandle::drop_pages() const noexcept {
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
}

Status SourceHandle::check_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return system_error(file_.path, "fstat", -errno);
  if (!S_ISREG(status.st_mode)) return changed(file_.path, "something that is no regular file");
  LODE_TRY_STATUS(compare(file_, status));
  if (::stat(file_.path.c_str(), &status) != 0) {
    return changed(file_.path, fmt::format("stat: {}", std::strerror(errno)));
  }
  return compare(file_, status);
}

}  // namespace lode::io
