#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lode/base/result.h"

namespace lode::memory {

/// Address space for bytes that are made from front to back and leave as they are finished: of the
/// whole only what lies between the front and the last byte written is ever held. Zeros until
/// written. Move-only.
///
/// What is held at once is for the caller to bound and to reserve (`passing_cost`).
class PassingBuffer {
 public:
  PassingBuffer() = default;
  PassingBuffer(PassingBuffer&& other) noexcept;
  PassingBuffer& operator=(PassingBuffer&& other) noexcept;
  ~PassingBuffer();

  /// Begins on a multiple of 2 MiB.
  /// Errors: kIo if the system refuses the mapping.
  static Result<PassingBuffer> make(std::uint64_t bytes, std::string_view what);

  /// All of it; what lies before `front_bytes` must not be touched any more.
  std::span<std::byte> mutate() & noexcept { return {data_, size_}; }
  std::uint64_t front_bytes() const noexcept { return front_; }

  /// Gives everything before `offset_bytes` back, with the page tables that map it. A multiple of
  /// 2 MiB or the end; never backwards.
  void pass(std::uint64_t offset_bytes) noexcept;

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;    // as asked for
  std::size_t mapped_ = 0;  // as mapped, with what is gone
  std::size_t front_ = 0;
};

}  // namespace lode::memory
