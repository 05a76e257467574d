#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/range.h"
#include "lode/layout/row_order.h"

namespace lode::layout {

/// Rows of the same length at equal distances: codes, block scales or single numbers (a bias is
/// rows of one number).
/// Source: weight_layouts 0, 4.3: how checkpoints hold gate and up.
struct RowRun {
  const std::byte* first = nullptr;  // of row rows.begin, byte MatrixRows::bytes.begin
  std::uint64_t step_bytes = 0;
  Range rows{};  // that are in memory
};

/// One matrix, or gate and up, wherever their rows lie: in two tensors, one below the other or in
/// turn. Borrows; what it points to outlives it. Of a matrix that is too large only a part may be
/// in memory: some rows of each half, and some bytes of every row.
///
/// Shapes: each half [half_rows, row_bytes].
struct MatrixRows {
  std::array<RowRun, 2> halves;
  std::uint32_t num_halves = 1;
  std::uint64_t half_rows = 0;
  std::uint64_t row_bytes = 0;
  Range bytes{};

  /// The bytes of a row, of which only those in memory may be read; none where the half has fewer
  /// rows: padding.
  std::span<const std::byte> row(const HalfRow& at) const noexcept {
    if (at.row >= half_rows) return {};
    const RowRun& half = halves[at.half];
    return {half.first + (at.row - half.rows.begin) * half.step_bytes - bytes.begin, row_bytes};
  }
  bool empty() const noexcept { return half_rows == 0; }

  /// What of a half, and of each row, is in memory.
  Range rows_here(std::uint32_t half) const noexcept { return halves[half].rows.below(half_rows); }
  Range bytes_here() const noexcept { return bytes.below(row_bytes); }
  /// The bytes of a row that are in memory.
  std::span<const std::byte> row_here(const HalfRow& at) const noexcept {
    const Range here = bytes_here();
    return at.row < half_rows ? row(at).subspan(here.begin, here.size())
                              : std::span<const std::byte>{};
  }
};

/// `num_halves` matrices of `half_rows` rows in one piece of memory, as `stored` says how gate's
/// rows and up's follow each other (kGateThenUp or kGateUpInTurn).
///
/// Shapes: bytes [num_halves * half_rows * row_bytes].
inline MatrixRows rows_of(std::span<const std::byte> bytes, std::uint32_t num_halves,
                          std::uint64_t row_bytes,
                          GateUpOrder stored = GateUpOrder::kGateThenUp) noexcept {
  const std::uint64_t half_rows = row_bytes == 0 ? 0 : bytes.size() / row_bytes / num_halves;
  const bool in_turn = num_halves == 2 && stored == GateUpOrder::kGateUpInTurn;
  const std::uint64_t step = in_turn ? 2 * row_bytes : row_bytes;
  const std::uint64_t second = in_turn ? row_bytes : half_rows * row_bytes;
  MatrixRows rows{{}, num_halves, half_rows, row_bytes};
  rows.halves[0] = {bytes.data(), step};
  if (num_halves == 2) rows.halves[1] = {bytes.data() + second, step};
  return rows;
}

}  // namespace lode::layout
