#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lode/base/range.h"

namespace lode::layout {

// One matrix w13 [2N, k] holds two, gate and up. Which row is whose, for N = 4:
//
//   row                0   1   2   3   4   5   6   7
//   kGateThenUp        g0  g1  g2  g3  u0  u1  u2  u3      checkpoints, Marlin, vllm-cutlass
//   kUpThenGate        u0  u1  u2  u3  g0  g1  g2  g3      flashinfer-cutlass, -b12x
//   kGateUpInTurn      g0  u0  g1  u1  g2  u2  g3  u3      gpt-oss as it is stored
//   kUpGateInTurn      u0  g0  u1  g1  u2  g2  u3  g3      flashinfer-trtllm, before its shuffle
//   kUpGateBy64        64 rows of up, 64 of gate, ...      CuteDSL; N a multiple of 64
//
// The TRT-LLM kernels want the rows of each block of 16 or 32 in another order yet, so that what
// one thread holds of a tile lies together (output row r takes row shuffled(r) of the order above):
//
//   kBy32   32*(r/32) + 4*(r%8) + (r%32)/8
//   kBy16   16*(r/16) + 2*(r%8) + (r%16)/8
//
// Padding: rows at the end of each half, never behind both: the border between the halves must not
// move.
// Source: weight_layouts 2.3, 2.4; tests/golden/weight_layouts, trtllm_row_maps.

enum class GateUpOrder : std::uint8_t {
  kGateThenUp,
  kUpThenGate,
  kGateUpInTurn,
  kUpGateInTurn,
  kUpGateBy64,
};
std::string_view name(GateUpOrder order) noexcept;

enum class RowShuffle : std::uint8_t { kNone, kBy16, kBy32 };
std::string_view name(RowShuffle shuffle) noexcept;

/// A row of one of the two matrices: gate is half 0, up half 1. The only matrix of a layer that is
/// not gated, and down, are half 0 of one.
struct HalfRow {
  std::uint32_t half = 0;
  std::uint64_t row = 0;

  friend bool operator==(const HalfRow&, const HalfRow&) = default;
};

/// Which row lies where: a bijection between [0, rows()) and the rows of the halves.
struct RowOrder {
  std::uint32_t num_halves = 1;
  std::uint64_t half_rows = 0;  // padded; rows() a multiple of the block of the shuffle
  GateUpOrder order = GateUpOrder::kGateThenUp;  // of two halves
  RowShuffle shuffle = RowShuffle::kNone;

  std::uint64_t rows() const noexcept { return num_halves * half_rows; }
  /// The row that lies at `position`.
  HalfRow at(std::uint64_t position) const noexcept;
  /// Where a row lies: the inverse of `at`.
  std::uint64_t position_of(const HalfRow& row) const noexcept;
};

/// Of each half, from the first to the last row that lies in [first, end): what a piece of the
/// order is made of.
std::array<Range, 2> rows_within(const RowOrder& order, std::uint64_t first,
                                 std::uint64_t end) noexcept;

/// Rows per block of a shuffle; 1 for none.
std::uint64_t block_rows(RowShuffle shuffle) noexcept;

}  // namespace lode::layout
