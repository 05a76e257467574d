#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/formats/fp8_requantise.h"
#include "lode/layout/half_swap.h"
#include "lode/layout/matrix_rows.h"

namespace lode::layout {

//   rows of one expert in the order of a RowOrder (drawn there), r' bytes each:
//
//   position p   | row order.at(p), r bytes | padding, r' - r bytes |
//
//   byte c of row x lies at order.position_of(x) * r' + c
//
// Padding: rows beyond those of a half and columns beyond those of a row hold one byte, mostly 0.
// Source: weight_layouts 2.3, 2.4; tests/golden/weight_layouts, shuffle_matrix_sf_a.

/// A matrix as a kernel reads it: rows from wherever they lie, in which order, how wide.
struct OrderedRows {
  MatrixRows rows;
  RowOrder order;
  std::uint64_t row_bytes = 0;  // padded
  std::byte padding{};
  // What to make of each byte of a half; as it is where null.
  std::array<const formats::CodeMap*, 2> byte_maps{};

  std::uint64_t bytes() const noexcept { return order.rows() * row_bytes; }
};

/// Where a byte of a row lies.
inline std::uint64_t ordered_offset(const RowOrder& order, std::uint64_t row_bytes,
                                    const HalfRow& row, std::uint64_t column) noexcept {
  return order.position_of(row) * row_bytes + column;
}

/// Row `position` of the order, padded; into scales and codes of other layouts too.
/// Shapes: out [row_bytes].
void ordered_row_into(const OrderedRows& from, std::uint64_t position,
                      std::span<std::byte> out) noexcept;

/// Rows [first_row, first_row + out.size() / row_bytes) of the order.
/// Shapes: out [n * row_bytes].
void ordered_rows_into(const OrderedRows& from, std::uint64_t first_row,
                       std::span<std::byte> out) noexcept;

/// Rows that change places where they lie, in cycles: each row moves once.
struct RowShuffleInPlace {
  std::uint64_t num_experts = 0;
  std::array<std::uint64_t, 3> row_bytes{};  // of weight, scale and bias; 0 for none
  std::vector<std::uint32_t> source_of;      // position -> where its row lies before
  std::vector<std::uint32_t> cycle_begins;   // one position of each cycle of two or more
};

/// Checks that rows in the order `from` can be brought to the order `to`, and finds the cycles.
///
/// Shapes: as GateUpTensors, of orders of one half [E, N, k], with as many rows as the orders have.
/// Memory: 4 bytes a row and at most 2 more for the cycles; `run` takes 4 KiB of stack a thread.
/// Errors: kInvalidSource for tensors of other shapes; kUnsupported where the blocks of a shuffle
///         do not divide the rows, or the orders do not have the same rows.
Result<RowShuffleInPlace> plan_row_shuffle(const GateUpTensors& tensors, const RowOrder& from,
                                           const RowOrder& to);

/// Carries out the shuffle on the tensors that it was made for, and hands them back. Cannot fail;
/// the same bytes for any number of threads.
///
/// Shapes: as planned.
GateUpTensors run(const RowShuffleInPlace& shuffle, GateUpTensors&& tensors,
                  parallel::ThreadPool* pool = nullptr) noexcept;

}  // namespace lode::layout
