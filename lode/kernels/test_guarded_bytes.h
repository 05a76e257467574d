#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace lode::kernels {

/// Bytes that end where a page begins that nobody may touch: who reads or writes behind them dies,
/// also where no sanitizer watches (masked loads of intrinsics).
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) : size_(size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) std::abort();
    auto* const begin = static_cast<std::byte*>(memory_);
    if (mprotect(begin + mapped_ - page, page, PROT_NONE) != 0) std::abort();
    data_ = begin + mapped_ - page - size;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(memory_, mapped_); }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::size_t mapped_ = 0;
  void* memory_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace lode::kernels
