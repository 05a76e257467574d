#include "lode/checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr std::uint64_t kPageBytes = 4096;

std::int64_t to_ns(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
}

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .mtime_ns = to_ns(status.st_mtim),
          .ctime_ns = to_ns(status.st_ctim)};
}

Error system_error(std::string_view path, std::string_view doing, int number) {
  return {.code = Code::kIo,
          .thing = printable(path),
          .found = fmt::format("{}: {}", doing, std::strerror(number))};
}

Error not_there(std::string_view path) {
  return {.code = Code::kInvalidSource,
          .thing = printable(path),
          .wanted = "a file",
          .found = "nothing of that name",
          .hint = "an incomplete download, or a link that leads nowhere"};
}

Error changed(std::string_view path, std::string found) {
  return {.code = Code::kSourceChanged,
          .thing = printable(path),
          .wanted = "the file that was opened, unchanged",
          .found = std::move(found)};
}

}  // namespace

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      identity_(other.identity_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  // Non-blocking, so that a pipe put in place of a shard cannot hold us up.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return not_there(path.string());
    return system_error(path.string(), "open", errno);
  }
  InputFile file(descriptor, path.string());
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return system_error(file.path_, "fstat", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{.code = Code::kInvalidSource,
                 .thing = printable(file.path_),
                 .wanted = "a regular file",
                 .found = S_ISDIR(status.st_mode) ? "a folder" : "a special file"};
  }
  file.identity_ = identity_of(status);
  // Reading ahead of a header would bring weights into the page cache, a few MiB a shard.
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  return file;
}

Status InputFile::read_into(std::uint64_t offset, std::span<std::byte> out) const {
  const auto begin = static_cast<off_t>(offset / kPageBytes * kPageBytes);
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return system_error(path_, fmt::format("read at byte {}", offset), errno);
    }
    if (got == 0) return changed(path_, fmt::format("its end at byte {}", offset));
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  // What was read does not stay in the page cache: it counts as held.
  const auto end = static_cast<off_t>(align_up(offset, kPageBytes));
  if (end > begin) ::posix_fadvise(descriptor_, begin, end - begin, POSIX_FADV_DONTNEED);
  return {};
}

Status check_unchanged(const std::filesystem::path& path, const FileIdentity& identity) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return changed(path.string(), "nothing of that name");
    return system_error(path.string(), "stat", errno);
  }
  const FileIdentity now = identity_of(status);
  if (now == identity) return {};
  if (now.bytes != identity.bytes) {
    return changed(path.string(), fmt::format("{} bytes, not {}", now.bytes, identity.bytes));
  }
  const bool same_file = now.device == identity.device && now.inode == identity.inode;
  return changed(path.string(), same_file ? "a later time of change" : "another file in its place");
}

Result<std::optional<std::string>> read_small_file(const std::filesystem::path& path,
                                                   std::uint64_t max_bytes) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return std::optional<std::string>();
  LODE_TRY(const InputFile file, InputFile::open(path));
  if (file.identity().bytes > max_bytes) {
    return Error{.code = Code::kInvalidSource,
                 .thing = printable(file.path()),
                 .wanted = fmt::format("at most {} bytes", max_bytes),
                 .found = fmt::format("{} bytes", file.identity().bytes)};
  }
  std::string text(static_cast<std::size_t>(file.identity().bytes), '\0');
  LODE_TRY_STATUS(file.read_into(0, std::as_writable_bytes(std::span(text))));
  return std::optional<std::string>(std::move(text));
}

bool is_plain_basename(std::string_view name) noexcept {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         std::ranges::all_of(name, is_plain);
}

}  // namespace lode::checkpoint
