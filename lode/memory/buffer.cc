#include "lode/memory/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/memory/hard_limit.h"
#include "lode/memory/mapped_table.h"

namespace lode::memory {
namespace {

Error refused_by_system(std::string_view what, std::string_view call, std::uint64_t bytes) {
  const int number = errno;
  return Error{.code = number == ENOMEM ? code_of_refused_memory(Code::kIo) : Code::kIo,
               .thing = std::string(what),
               .wanted = fmt::format("{} of {} bytes", call, bytes),
               .found = std::strerror(number)};
}

// Maps `bytes` so that they begin on a multiple of `alignment`, a multiple of the page size.
void* map_aligned(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t slack = alignment - kPageBytes;
  void* const raw = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED || slack == 0) return raw;
  auto* const begin = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t head = (alignment - address % alignment) % alignment;
  if (head != 0) munmap(begin, head);
  if (slack != head) munmap(begin + head + bytes, slack - head);
  return begin + head;
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, 0);
  sealed_ = std::exchange(other.sealed_, false);
  table_entry_ = std::exchange(other.table_entry_, -1);
  reservation_ = std::move(other.reservation_);
  page_tables_ = std::move(other.page_tables_);
  return *this;
}

Buffer::~Buffer() { unmap(); }

void Buffer::unmap() noexcept {
  if (data_ == nullptr) return;
  forget_mapped(table_entry_);
  LODE_CHECK(munmap(data_, mapped_) == 0, "our own mapping could not be unmapped");
  data_ = nullptr;
  table_entry_ = -1;
}

std::span<std::byte> Buffer::mutate() & noexcept {
  LODE_CHECK(!sealed_, "sealed bytes cannot be changed");
  return {data_, size_};
}

Status Buffer::seal() {
  if (data_ != nullptr && mprotect(data_, mapped_, PROT_READ) != 0) {
    return refused_by_system("sealing weights", "mprotect", mapped_);
  }
  sealed_ = true;
  return {};
}

Result<Buffer> make_buffer(Ledger& ledger, Tag tag, std::uint64_t bytes, std::string_view what) {
  const BufferCost cost = buffer_cost(bytes);
  Buffer buffer;
  LODE_TRY(buffer.reservation_, ledger.reserve(tag, cost.tag_bytes, what));
  LODE_TRY(buffer.page_tables_, ledger.reserve(Tag::kPageTables, cost.page_table_bytes, what));
  if (bytes == 0) return buffer;
  const bool huge = cost.tag_bytes >= kHugePageBytes;
  void* const data = map_aligned(cost.tag_bytes, huge ? kHugePageBytes : kPageBytes);
  if (data == MAP_FAILED) return refused_by_system(what, "mmap", cost.tag_bytes);
  if (huge) madvise(data, cost.tag_bytes, MADV_HUGEPAGE);  // advice: without it only slower
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = bytes;
  buffer.mapped_ = cost.tag_bytes;
  return buffer;
}

}  // namespace lode::memory
