#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lode::memory {

/// Whether the kernel tells us the truth about the page cache of an open file: only to those who
/// own it or may write to it; to others mincore calls every page resident.
bool may_see_residency(int descriptor);

/// Tells which pages of an open file are in the page cache. The file is mapped for this, shared and
/// for reading, and never touched: no page, no page table, nothing to fault on. Movable; unmapped
/// when it ends.
class PageResidency {
 public:
  PageResidency(PageResidency&& other) noexcept;
  PageResidency& operator=(PageResidency&& other) noexcept;
  ~PageResidency();

  /// Nothing where the system does not map the file, or would not say: to those who neither own a
  /// file nor may write to it, mincore calls every page resident.
  static std::optional<PageResidency> of(int descriptor, std::uint64_t bytes);

  /// Sets an element a page, from `first_page` on: 1 where it is resident. Pages beyond the end
  /// count as absent. False where the system does not say.
  bool look(std::uint64_t first_page, std::span<unsigned char> resident) const;

 private:
  PageResidency(std::byte* begin, std::uint64_t bytes) : begin_(begin), bytes_(bytes) {}

  std::byte* begin_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace lode::memory
