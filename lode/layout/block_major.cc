#include "lode/layout/block_major.h"

#include <algorithm>
#include <cstring>

namespace lode::layout {
namespace {

/// Bytes [at, at + 128) of a row, or what stands there for it.
void piece_into(const OrderedRows& from, std::uint64_t position, std::uint64_t at,
                std::byte* out) noexcept {
  const std::span<const std::byte> row = from.rows.row(from.order.at(position));
  const std::uint64_t left = row.size() > at ? row.size() - at : 0;
  const std::uint64_t size = std::min(kBlockMajorBytes, left);
  if (size != 0) std::memcpy(out, row.data() + at, size);
  std::fill(out + size, out + kBlockMajorBytes, from.padding);
}

}  // namespace

void block_major_into(const OrderedRows& from, std::uint64_t first,
                      std::span<std::byte> out) noexcept {
  const std::uint64_t num_rows = from.order.rows();
  const std::uint64_t unit_bytes = num_rows * kBlockMajorBytes;
  for (std::uint64_t unit = 0; unit < out.size() / unit_bytes; ++unit) {
    std::byte* const column = out.data() + unit * unit_bytes;
    for (std::uint64_t position = 0; position < num_rows; ++position) {
      piece_into(from, position, (first + unit) * kBlockMajorBytes,
                 column + position * kBlockMajorBytes);
    }
  }
}

}  // namespace lode::layout
