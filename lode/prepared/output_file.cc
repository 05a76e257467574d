#include "lode/prepared/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "lode/base/bytes.h"

namespace lode::prepared {
namespace {

constexpr std::uint64_t kPageBytes = 4 * kKiB;

// An interrupted call is made again.
template <class Call>
auto again(Call call) {
  for (;;) {
    const auto answer = call();
    if (answer != -EINTR) return answer;
  }
}

Status answer_of(std::int64_t answer, std::string_view path, std::string_view doing) {
  if (answer >= 0) return {};
  return io::system_error(path, doing, answer);
}

// Linux 6.1.64 and 6.1.65 could corrupt files by direct writes to ext4.
// Source: Debian bug 1057843.
bool writes_past_the_cache_are_safe() {
  utsname names{};
  if (::uname(&names) != 0) return true;
  for (const std::string_view text :
       {std::string_view(names.release), std::string_view(names.version)}) {
    for (const std::string_view bad : {"6.1.64", "6.1.65"}) {
      if (text.find(bad) != std::string_view::npos) return false;
    }
  }
  return true;
}

bool is_whole_pages(std::span<const std::byte> bytes, std::uint64_t offset_bytes) {
  return bytes.size() % kPageBytes == 0 && offset_bytes % kPageBytes == 0;
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(direct_, other.direct_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) calls_->close(descriptor_);
}

Result<OutputFile> OutputFile::open(io::SystemCalls& calls, std::string path, Way way) {
  constexpr unsigned kMode = 0666;  // less the user's mask
  const bool direct = way == Way::kDirect && writes_past_the_cache_are_safe();
  int descriptor = -EINVAL;
  if (direct) {
    descriptor = again([&] { return calls.open(path, O_RDWR | O_CREAT | O_DIRECT, kMode); });
  }
  const bool refused = descriptor == -EINVAL;  // by a file system without direct writes
  if (refused) descriptor = again([&] { return calls.open(path, O_RDWR | O_CREAT, kMode); });
  if (descriptor < 0) return io::system_error(path, "open it to write", descriptor);
  OutputFile file(calls, std::move(path), descriptor);
  file.direct_ = !refused;
  return file;
}

Result<OutputFile> OutputFile::open_to_read(io::SystemCalls& calls, std::string path) {
  const int descriptor = again([&] { return calls.open(path, O_RDONLY | O_NONBLOCK, 0); });
  if (descriptor < 0) return io::system_error(path, "open it", descriptor);
  return OutputFile(calls, std::move(path), descriptor);
}

Status OutputFile::write(std::span<const std::byte> bytes, std::uint64_t offset_bytes) {
  LODE_CHECK(!direct_ || is_whole_pages(bytes, offset_bytes), "direct writes are whole pages");
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto wrote = again(
        [&] { return calls_->pwrite(descriptor_, bytes.subspan(done), offset_bytes + done); });
    if (wrote == -EINVAL && direct_) {  // opened, but refuses after all
      LODE_TRY(*this, open(*calls_, path_, Way::kBuffered));
      continue;
    }
    if (wrote < 0) return io::system_error(path_, "write", wrote);
    if (wrote == 0) return io::system_error(path_, "write", -ENOSPC);
    // A short count that is no whole page: the page is written again.
    done += static_cast<std::size_t>(wrote);
    if (direct_) done = done / kPageBytes * kPageBytes;
  }
  return direct_ ? Status{} : drop_behind(offset_bytes, bytes.size());
}

// The cache drops only pages that are on the disk. What is small stays until it is synced.
Status OutputFile::drop_behind(std::uint64_t offset_bytes, std::uint64_t bytes) {
  if (bytes < kMiB) return {};
  calls_->start_writing_out(descriptor_, offset_bytes, bytes);
  LODE_TRY_STATUS(sync_data());
  calls_->drop_cache(descriptor_, offset_bytes, bytes);
  return {};
}

Result<std::size_t> OutputFile::read(std::span<std::byte> out, std::uint64_t offset_bytes) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto got =
        again([&] { return calls_->pread(descriptor_, out.subspan(done), offset_bytes + done); });
    if (got < 0) return io::system_error(path_, "read", got);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Status OutputFile::allocate(std::uint64_t offset_bytes, std::uint64_t bytes) {
  const int answer = again([&] { return calls_->allocate(descriptor_, offset_bytes, bytes); });
  if (answer == -EOPNOTSUPP || answer == -ENOSYS) return {};
  return answer_of(answer, path_, "take room on the disk");
}

Status OutputFile::truncate(std::uint64_t bytes) {
  return answer_of(again([&] { return calls_->truncate(descriptor_, bytes); }), path_, "cut it");
}

Status OutputFile::sync_data() {
  return answer_of(again([&] { return calls_->sync_data(descriptor_); }), path_,
                   "bring it to the disk");
}

Status OutputFile::lock() {
  if (again([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB) < 0 ? -errno : 0; }) == 0) {
    return {};
  }
  return Error{.code = Code::kIo,
               .thing = path_,
               .wanted = "a folder that nobody else writes to",
               .found = "another lode prepare at work there"};
}

Result<std::uint64_t> OutputFile::size() const {
  io::FileStatus status;
  LODE_TRY_STATUS(answer_of(calls_->status(descriptor_, status), path_, "look at it"));
  return status.bytes;
}

Status sync_folder(io::SystemCalls& calls, const std::string& folder) {
  const int descriptor = again([&] { return calls.open(folder, O_RDONLY | O_DIRECTORY, 0); });
  if (descriptor < 0) return io::system_error(folder, "open the folder", descriptor);
  const int answer = again([&] { return calls.sync(descriptor); });
  calls.close(descriptor);
  return answer_of(answer, folder, "bring the folder to the disk");
}

Status replace_file(io::SystemCalls& calls, const std::string& folder, const std::string& name,
                    std::span<const std::byte> bytes) {
  const std::string path = folder + "/" + name;
  const std::string beside = path + ".part";
  {
    LODE_TRY(OutputFile file, OutputFile::open(calls, beside, OutputFile::Way::kBuffered));
    LODE_TRY_STATUS(file.truncate(0));
    LODE_TRY_STATUS(file.write(bytes, 0));
    LODE_TRY_STATUS(file.sync_data());
  }
  LODE_TRY_STATUS(rename_file(calls, beside, path));
  return sync_folder(calls, folder);
}

Status rename_file(io::SystemCalls& calls, const std::string& from, const std::string& to) {
  return answer_of(again([&] { return calls.rename(from, to); }), to, "put it in its place");
}

Status remove_file(io::SystemCalls& calls, const std::string& path) {
  const int answer = again([&] { return calls.unlink(path); });
  if (answer == -ENOENT) return {};
  return answer_of(answer, path, "remove it");
}

Status make_folder(io::SystemCalls& calls, const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  int answer = again([&] { return calls.make_folder(path); });
  if (answer == -ENOENT && !parent.empty() && parent != path) {
    LODE_TRY_STATUS(make_folder(calls, parent.string()));
    answer = again([&] { return calls.make_folder(path); });
  }
  if (answer == -EEXIST) return {};
  LODE_TRY_STATUS(answer_of(answer, path, "make the folder"));
  return sync_folder(calls, parent.empty() ? "." : parent.string());
}

}  // namespace lode::prepared
