#include "lode/layout/block_major.h"

#include <algorithm>
#include <cstring>

namespace lode::layout {
namespace {

// Rows lie far apart, so no machine guesses which one is next.
constexpr std::uint64_t kRowsAhead = 12;

void fetch(std::span<const std::byte> row, std::uint64_t at) noexcept {
  if (row.size() < at + kBlockMajorBytes) return;
  __builtin_prefetch(row.data() + at);
  __builtin_prefetch(row.data() + at + kBlockMajorBytes / 2);
  __builtin_prefetch(row.data() + at + kBlockMajorBytes - 1);
}

/// Bytes [at, at + 128) of a row, or what stands there for it.
void piece_into(std::span<const std::byte> row, std::byte padding, std::uint64_t at,
                std::byte* out) noexcept {
  if (row.size() >= at + kBlockMajorBytes) {
    std::memcpy(out, row.data() + at, kBlockMajorBytes);
    return;
  }
  const std::uint64_t left = row.size() > at ? row.size() - at : 0;
  if (left != 0) std::memcpy(out, row.data() + at, left);
  std::fill(out + left, out + kBlockMajorBytes, padding);
}

}  // namespace

void block_major_into(const OrderedRows& from, std::uint64_t first,
                      std::span<std::byte> out) noexcept {
  const std::uint64_t num_rows = from.order.rows();
  const std::uint64_t unit_bytes = num_rows * kBlockMajorBytes;
  const std::uint64_t num_units = out.size() / unit_bytes;
  for (std::uint64_t position = 0; position < num_rows; ++position) {
    const std::uint64_t ahead = position + kRowsAhead;
    if (ahead < num_rows) fetch(from.rows.row(from.order.at(ahead)), first * kBlockMajorBytes);
    const std::span<const std::byte> row = from.rows.row(from.order.at(position));
    std::byte* const begin = out.data() + position * kBlockMajorBytes;
    for (std::uint64_t unit = 0; unit < num_units; ++unit) {
      piece_into(row, from.padding, (first + unit) * kBlockMajorBytes, begin + unit * unit_bytes);
    }
  }
}

}  // namespace lode::layout
