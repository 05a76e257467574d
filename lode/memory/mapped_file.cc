#include "lode/memory/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/memory/mapped_table.h"

namespace lode::memory {
namespace {

// Between two pieces a signal to the process is taken.
constexpr std::uint64_t kPopulateBytes = 64 * kMiB;

Error refused(const FileRange& range, std::string_view call) {
  return {.code = Code::kIo,
          .thing = range.path,
          .wanted = fmt::format("{} of {} bytes at {}", call, range.bytes, range.offset_bytes),
          .found = std::strerror(errno)};
}

Status check_length(const FileRange& range) {
  struct stat status {};
  if (::fstat(range.descriptor, &status) != 0) return refused(range, "fstat");
  const auto end = checked_add(range.offset_bytes, range.bytes);
  if (end && *end <= static_cast<std::uint64_t>(status.st_size)) return {};
  return Error{.code = Code::kSourceChanged,
               .thing = range.path,
               .wanted = fmt::format("{} bytes from {} on", range.bytes, range.offset_bytes),
               .found = fmt::format("a file of {} bytes", status.st_size)};
}

// Address space that begins on a huge page, so that huge pages of the page cache can be mapped as
// such; the file is put on top of it.
void* map_on_huge_page(const FileRange& range, std::size_t bytes) noexcept {
  const std::size_t slack = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  void* const raw =
      mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return raw;
  auto* const begin = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t head = slack == 0 ? 0 : (slack - address % slack) % slack;
  if (head != 0) munmap(begin, head);
  if (slack != head) munmap(begin + head + bytes, slack - head);
  void* const mapped = mmap(begin + head, bytes, PROT_READ, MAP_SHARED | MAP_FIXED,
                            range.descriptor, static_cast<off_t>(range.offset_bytes));
  if (mapped == MAP_FAILED) {
    const int why = errno;
    munmap(begin + head, bytes);
    errno = why;
  }
  return mapped;
}

}  // namespace

Result<Buffer> map_file(Ledger& ledger, Tag tag, const FileRange& range, std::string_view what) {
  LODE_CHECK(range.offset_bytes % kPageBytes == 0, "a mapping begins on a page");
  LODE_TRY_STATUS(check_length(range));
  const BufferCost cost = buffer_cost(range.bytes);
  Buffer buffer;
  LODE_TRY(buffer.reservation_, ledger.reserve(tag, cost.tag_bytes, what));
  LODE_TRY(buffer.page_tables_, ledger.reserve(Tag::kPageTables, cost.page_table_bytes, what));
  buffer.sealed_ = true;
  if (range.bytes == 0) return buffer;
  const std::size_t bytes = align_up(range.bytes, kPageBytes);
  void* const data = map_on_huge_page(range, bytes);
  if (data == MAP_FAILED) return refused(range, "mmap");
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = range.bytes;
  buffer.mapped_ = bytes;
  buffer.table_entry_ = remember_mapped(data, bytes, range.offset_bytes, range.path);
  return buffer;
}

Status populate(const Buffer& mapped, std::string_view name) {
  // The pages are only read: madvise asks for a pointer to what may be written.
  auto* const begin = const_cast<std::byte*>(mapped.bytes().data());
  const std::size_t bytes = align_up<std::uint64_t>(mapped.bytes().size(), kPageBytes);
  for (std::size_t at = 0; at < bytes; at += kPopulateBytes) {
    const std::size_t piece = std::min<std::size_t>(kPopulateBytes, bytes - at);
    int failed = 0;
    do {
      failed = madvise(begin + at, piece, MADV_POPULATE_READ);
    } while (failed != 0 && (errno == EINTR || errno == EAGAIN));
    if (failed == 0) continue;
    const bool unknown = errno == EINVAL;
    return Error{.code = unknown ? Code::kUnsupported : Code::kSourceChanged,
                 .thing = std::string(name),
                 .wanted = fmt::format("its pages from byte {} on", at),
                 .found = unknown ? "a system that cannot bring pages in without touching them"
                                  : fmt::format("{}: cut off or unreadable", std::strerror(errno)),
                 .hint = unknown ? "--start read" : "`lode verify` names what is damaged"};
  }
  return {};
}

}  // namespace lode::memory
