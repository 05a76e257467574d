#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/layout/row_order.h"

namespace lode::layout {

/// Rows of the same length at equal distances: codes, block scales or single numbers (a bias is
/// rows of one number).
/// Source: weight_layouts 0, 4.3: how checkpoints hold gate and up.
struct RowRun {
  const std::byte* first = nullptr;
  std::uint64_t step_bytes = 0;
};

/// One matrix, or gate and up, wherever their rows lie: in two tensors, one below the other or in
/// turn. Borrows; what it points to outlives it.
///
/// Shapes: each half [half_rows, row_bytes].
struct MatrixRows {
  std::array<RowRun, 2> halves;
  std::uint32_t num_halves = 1;
  std::uint64_t half_rows = 0;
  std::uint64_t row_bytes = 0;

  /// The bytes of a row; none where the half has fewer rows: padding.
  std::span<const std::byte> row(const HalfRow& at) const noexcept {
    if (at.row >= half_rows) return {};
    const RowRun& half = halves[at.half];
    return {half.first + at.row * half.step_bytes, row_bytes};
  }
  bool empty() const noexcept { return half_rows == 0; }
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
