#include "lode/io/source_handle.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "lode/base/fmt.h"

namespace lode::io {

Error source_changed(const std::string& path, std::string found) {
  return {.code = Code::kSourceChanged,
          .thing = path,
          .wanted = "the file that was opened, unchanged",
          .found = std::move(found),
          .hint = "load again when nothing writes to the checkpoint"};
}

SourceHandle::~SourceHandle() {
  for (const int descriptor : {through_cache_, past_cache_}) {
    if (descriptor >= 0) calls_.close(descriptor);
  }
}

Result<int> SourceHandle::open_one(int flags) {
  // Non-blocking, so that a pipe put in place of a shard cannot hold us up.
  const int descriptor = calls_.open(file_.path, flags | O_RDONLY | O_NONBLOCK, 0);
  if (descriptor == -ENOENT || descriptor == -ENOTDIR) {
    return source_changed(file_.path, "nothing of that name");
  }
  if (descriptor == -EMFILE) {
    Error error = system_error(file_.path, "open", descriptor);
    error.hint = "the limit of open files is too low for so many shards: ulimit -n";
    return error;
  }
  if (descriptor < 0) return system_error(file_.path, "open", descriptor);
  FileStatus status;
  const int answer = calls_.status(descriptor, status);
  const Status same =
      answer < 0 ? Status(system_error(file_.path, "fstat", answer)) : compare(status);
  if (!same) {
    calls_.close(descriptor);
    return same.error();
  }
  // Where a file system cannot tell whether it would block, io_uring would not read at all.
  ::fcntl(descriptor, F_SETFL, flags);
  return descriptor;
}

Status SourceHandle::open(Way way) {
  if (way == Way::kPastCache) {
    auto opened = open_one(O_DIRECT);
    if (opened) {
      past_cache_ = *opened;
      const int alignment = calls_.direct_alignment(past_cache_);
      const bool unknown = alignment < 0;
      direct_ = unknown || (alignment > 0 && kBlockBytes % static_cast<unsigned>(alignment) == 0);
      if (direct_) return {};
      calls_.close(std::exchange(past_cache_, -1));
    } else if (opened.error().code == Code::kSourceChanged) {
      return opened.error();
    }
  }
  LODE_TRY(const int through, descriptor(false));
  static_cast<void>(through);
  direct_ = way == Way::kThroughCache;
  return {};
}

Result<int> SourceHandle::descriptor(bool direct) {
  const std::scoped_lock lock(mutex_);
  int& descriptor = direct ? past_cache_ : through_cache_;
  if (descriptor >= 0) return descriptor;
  LODE_TRY(descriptor, open_one(direct ? O_DIRECT : 0));
  // Reads are whole ring slots already: reading ahead would only fill the page cache.
  if (!direct) calls_.advise_random(descriptor);
  return descriptor;
}

int SourceHandle::any_descriptor() {
  const std::scoped_lock lock(mutex_);
  return through_cache_ >= 0 ? through_cache_ : past_cache_;
}

bool SourceHandle::look(std::uint64_t first_page, std::span<unsigned char> resident) {
  {
    const std::scoped_lock lock(mutex_);
    if (!asked_) {
      residency_ = memory::PageResidency::of(through_cache_ >= 0 ? through_cache_ : past_cache_,
                                             file_.bytes);
    }
    asked_ = true;
  }
  return residency_ && residency_->look(first_page, resident);
}

void SourceHandle::drop_cache(std::uint64_t offset_bytes, std::uint64_t bytes) {
  calls_.drop_cache(any_descriptor(), offset_bytes, bytes);
}

Status SourceHandle::compare(const FileStatus& status) const {
  if (!status.regular) return source_changed(file_.path, "something that is no regular file");
  if (status.device != file_.device || status.inode != file_.inode) {
    return source_changed(file_.path, "another file of that name");
  }
  if (status.bytes != file_.bytes) {
    return source_changed(file_.path, fmt::format("{} bytes, not {}", status.bytes, file_.bytes));
  }
  const bool same_times = status.mtime_ns == file_.mtime_ns && status.ctime_ns == file_.ctime_ns;
  if (file_.times_count && !same_times) {
    return source_changed(file_.path, "a newer time of change");
  }
  return {};
}

Status SourceHandle::check_unchanged() {
  FileStatus status;
  if (const int answer = calls_.status(any_descriptor(), status); answer < 0) {
    return system_error(file_.path, "fstat", answer);
  }
  LODE_TRY_STATUS(compare(status));
  if (const int answer = calls_.status_of(file_.path, status); answer < 0) {
    return source_changed(file_.path, system_error(file_.path, "stat", answer).found);
  }
  return compare(status);
}

}  // namespace lode::io
