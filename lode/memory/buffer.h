#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lode/base/result.h"
#include "lode/memory/ledger.h"

namespace lode::memory {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kHugePageBytes = 2 * 1024 * 1024;

/// Bytes that a page table takes to map `bytes` of anonymous memory: one 512th, rounded up to whole
/// pages of the table. Source: measured, huge pages keep their spare tables (DESIGN, the contract).
constexpr std::uint64_t page_table_bytes(std::uint64_t bytes) noexcept {
  const std::uint64_t span = kHugePageBytes;  // mapped by one page of the table
  return (bytes + span - 1) / span * kPageBytes;
}

/// How a buffer of `bytes` is rounded: to whole pages, and to whole huge pages from 2 MiB on.
constexpr std::uint64_t mapped_bytes(std::uint64_t bytes) noexcept {
  const std::uint64_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  return (bytes + unit - 1) / unit * unit;
}

struct FileRange;

/// Anonymous zeroed memory with its reservation. Move-only; unmapped when it ends.
///
/// From 2 MiB on it is aligned to, rounded up to and advised for huge pages. Pages come into being
/// when they are first written, so what the kernel holds follows what was finished. `map_file`
/// makes one that is a part of a file instead, sealed from the beginning.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::span<const std::byte> bytes() const& noexcept { return {data_, size_}; }
  std::span<const std::byte> bytes() const&& = delete;
  /// The only way to writable bytes. Not after `seal`.
  std::span<std::byte> mutate() & noexcept;
  std::span<std::byte> mutate() && = delete;

  /// Makes the bytes read-only for good: a stray write dies at its own line.
  /// Errors: kIo if the system will not protect the pages.
  Status seal();
  bool sealed() const noexcept { return sealed_; }

 private:
  friend Result<Buffer> make_buffer(Ledger&, Tag, std::uint64_t, std::string_view);
  friend Result<Buffer> map_file(Ledger&, Tag, const FileRange&, std::string_view);
  void unmap() noexcept;

  Reservation reservation_;
  Reservation page_tables_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;    // as asked for
  std::size_t mapped_ = 0;  // as mapped
  bool sealed_ = false;
  int table_entry_ = -1;  // of a mapped file (mapped_table.h)
};

/// Reserves `mapped_bytes(bytes)` under `tag` and its page tables, then maps them.
///
/// Errors: kOverBudget from the ledger; kIo if the system refuses the mapping. Nothing is held
/// then.
Result<Buffer> make_buffer(Ledger& ledger, Tag tag, std::uint64_t bytes, std::string_view what);

/// What make_buffer adds to the ledger: under its tag and under page tables.
struct BufferCost {
  std::uint64_t tag_bytes = 0;
  std::uint64_t page_table_bytes = 0;
};
constexpr BufferCost buffer_cost(std::uint64_t bytes) noexcept {
  return {mapped_bytes(bytes), page_table_bytes(mapped_bytes(bytes))};
}

}  // namespace lode::memory
