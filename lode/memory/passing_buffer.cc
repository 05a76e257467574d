#include "lode/memory/passing_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/memory/buffer.h"

namespace lode::memory {

PassingBuffer::PassingBuffer(PassingBuffer&& other) noexcept { *this = std::move(other); }

PassingBuffer& PassingBuffer::operator=(PassingBuffer&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, 0);
  front_ = std::exchange(other.front_, 0);
  return *this;
}

PassingBuffer::~PassingBuffer() { unmap(); }

void PassingBuffer::unmap() noexcept {
  if (data_ == nullptr) return;
  const std::size_t gone = std::min(front_, mapped_);
  if (gone < mapped_) {
    LODE_CHECK(munmap(data_ + gone, mapped_ - gone) == 0, "our own mapping could not be unmapped");
  }
  data_ = nullptr;
}

Result<PassingBuffer> PassingBuffer::make(std::uint64_t bytes, std::string_view what) {
  PassingBuffer buffer;
  if (bytes == 0) return buffer;
  const std::size_t mapped = align_up(bytes, kHugePageBytes);
  const std::size_t slack = kHugePageBytes - kPageBytes;
  void* const raw = mmap(nullptr, mapped + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return Error{.code = Code::kIo,
                 .thing = std::string(what),
                 .wanted = fmt::format("mmap of {} bytes", mapped + slack),
                 .found = std::strerror(errno)};
  }
  auto* const begin = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t head = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  if (head != 0) munmap(begin, head);
  if (slack != head) munmap(begin + head + mapped, slack - head);
  madvise(begin + head, mapped, MADV_HUGEPAGE);  // advice: without it only slower
  buffer.data_ = begin + head;
  buffer.size_ = bytes;
  buffer.mapped_ = mapped;
  return buffer;
}

// Unmapped, not only emptied: tables of pages that are empty would stay until the end.
void PassingBuffer::pass(std::uint64_t offset_bytes) noexcept {
  const std::size_t to = offset_bytes >= size_ ? mapped_ : offset_bytes;
  LODE_CHECK(to >= front_ && to % kHugePageBytes == 0, "a buffer is passed forwards, by 2 MiB");
  if (to == front_) return;
  LODE_CHECK(munmap(data_ + front_, to - front_) == 0, "our own mapping could not be unmapped");
  front_ = to;
}

}  // namespace lode::memory
