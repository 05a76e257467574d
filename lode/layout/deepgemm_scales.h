#pragma once

#include <cstdint>
#include <span>

#include "lode/base/bytes.h"
#include "lode/layout/matrix_rows.h"
#include "lode/layout/row_order.h"

namespace lode::layout {

//   block scales of a matrix [M, k] with C blocks along k, exponents of one byte: four blocks of a
//   row lie in a word, the words of all rows side by side ("MN-major"). M = 6, C = 5:
//
//   word         0       1       2       3       4       5       6      7
//   word row 0   r0 c0-3 r1 c0-3 r2 c0-3 r3 c0-3 r4 c0-3 r5 c0-3 (none) (none)
//   word row 1   r0 c4   r1 c4   r2 c4   r3 c4   r4 c4   r5 c4   (none) (none)
//
//   exponent (r, c) at byte 4 * (c/4 * M' + r) + c%4
//
//   Where a block has 128 rows, each of them has the block's exponent.
//
// Padding: words of a word row to M', a multiple of 4, and blocks along k to a multiple of 4.
// Zeros; the words behind row M no kernel reads. Source: weight_layouts 3.6;
// tests/golden/weight_layouts, deepgemm_pack_ue8m0 (without the words behind M).

/// Where the exponents of one matrix lie: coordinate -> byte.
struct DeepgemmScales {
  std::uint64_t rows = 0;        // M, of the matrix
  std::uint64_t columns = 0;     // C, blocks along k
  std::uint64_t block_rows = 1;  // rows of the matrix that share a row of scales

  static constexpr std::uint64_t kWordBytes = 4;

  constexpr std::uint64_t aligned_rows() const noexcept { return align_up(rows, kWordBytes); }
  constexpr std::uint64_t word_rows() const noexcept {
    return align_up(columns, kWordBytes) / kWordBytes;
  }
  constexpr std::uint64_t word_row_bytes() const noexcept { return aligned_rows() * kWordBytes; }
  constexpr std::uint64_t bytes() const noexcept { return word_rows() * word_row_bytes(); }
  /// Bytes that hold no exponent.
  constexpr std::uint64_t padding_bytes() const noexcept { return bytes() - rows * columns; }

  /// The exponent of row `row` of the matrix in block `column` along k.
  constexpr std::uint64_t offset(std::uint64_t row, std::uint64_t column) const noexcept {
    return kWordBytes * (column / 4 * aligned_rows() + row) + column % 4;
  }
};

/// Word rows [first, first + out.size() / word_row_bytes) of E8M0 scales. `order` says which row of
/// the matrix lies where; rows that `scales` has not are padding.
///
/// Shapes: order.rows() is layout.rows; scales halves [cdiv(half_rows, block_rows), columns]; out
///         [n * word_row_bytes], every byte written.
void deepgemm_scales_into(const DeepgemmScales& layout, const RowOrder& order,
                          const MatrixRows& scales, std::uint64_t first,
                          std::span<std::byte> out) noexcept;

/// Row `row` of the matrix: its exponents, by the layout's function.
///
/// Shapes: packed [layout.bytes()], out [columns].
void unpack_deepgemm_row(const DeepgemmScales& layout, std::span<const std::byte> packed,
                         std::uint64_t row, std::span<std::byte> out) noexcept;

}  // namespace lode::layout
