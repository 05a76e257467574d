#pragma once

#include <cstdint>
#include <span>

#include "lode/layout/row_shuffle.h"

namespace lode::layout {

//   a matrix [R, C bytes] cut into columns of 128 bytes, one below the other:
//
//   byte        0 ... 127        128 ... 255       ...  128(R-1) ...   128R ...
//             row 0, 0..127     row 1, 0..127         row R-1        row 0, 128..255
//
//   (r, c) at c/128 * 128R + 128r + c%128
//
// A tile is one column, [R, 128]. Padding: columns to a multiple of 128 bytes, zeros.
// Source: weight_layouts 2.3 (BlockMajorK); tests/golden/weight_layouts, shuffle_matrix_sf_a.

inline constexpr std::uint64_t kBlockMajorBytes = 128;

constexpr std::uint64_t block_major_offset(std::uint64_t num_rows, std::uint64_t row,
                                           std::uint64_t column) noexcept {
  return column / kBlockMajorBytes * kBlockMajorBytes * num_rows + row * kBlockMajorBytes +
         column % kBlockMajorBytes;
}

/// Columns of 128 bytes [first, first + out.size() / (128 * rows)) of what `from` orders;
/// from.row_bytes is a multiple of 128.
///
/// Shapes: out [n * 128 * from.order.rows()], every byte written.
void block_major_into(const OrderedRows& from, std::uint64_t first,
                      std::span<std::byte> out) noexcept;

}  // namespace lode::layout
