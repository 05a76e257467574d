#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/kernels/marlin_tile.h"
#include "lode/layout/matrix_rows.h"
#include "lode/layout/panels.h"
#include "lode/layout/row_order.h"

namespace lode::layout {

//   A matrix [rows, k] of 4-bit or 8-bit codes in tiles of 16 k by 64 rows (32 by 32 for kernels
//   that read 8-bit activations), tiles of the same k side by side:
//
//             rows 0..63    rows 64..127         rows ..rows-1
//     k 0     | tile 0      | tile 1      | ...  | tile rows/64-1 |    one row of tiles: a unit
//     k 16    | ...
//
//   What lies where in a tile is drawn in kernels/marlin_tile.h. An engine sees int32
//   [k/16, 16 * rows * bits / 32]. As many bytes as the codes had before.
//
// Padding: none of its own: rows are a multiple of a tile's, k too. Rows and k that a source does
// not have are zero codes (RowOrder pads each half).
// Source: weight_layouts 1.2, 1.3; tests/golden/weight_layouts, marlin_repack_*.

/// A row and a k of the matrix.
struct MatrixSpot {
  std::uint64_t row = 0;
  std::uint64_t k = 0;

  friend bool operator==(const MatrixSpot&, const MatrixSpot&) = default;
};

/// Where every code of a matrix lies.
class MarlinLayout {
 public:
  /// Errors: kUnsupported naming rows that are no multiple of 64, a k that is none of a tile's, or
  ///         a number of bits other than 4 and 8, with what was found.
  static Result<MarlinLayout> make(std::uint64_t rows, std::uint64_t k,
                                   const kernels::MarlinShape& shape);

  const kernels::MarlinShape& shape() const noexcept { return shape_; }
  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t k() const noexcept { return k_; }
  std::uint64_t unit_bytes() const noexcept { return tiles_per_unit() * shape_.tile_bytes(); }
  std::uint64_t units() const noexcept { return k_ / shape_.tile_k(); }
  std::uint64_t total_bytes() const noexcept { return units() * unit_bytes(); }
  std::uint64_t tiles_per_unit() const noexcept { return rows_ / shape_.tile_rows(); }

  CodePlace code(const MatrixSpot& spot) const noexcept;
  /// The inverse of `code`.
  MatrixSpot at(const CodePlace& place) const noexcept;

 private:
  MarlinLayout() = default;

  kernels::MarlinShape shape_{};
  std::uint64_t rows_ = 0;
  std::uint64_t k_ = 0;
};

/// Makes units [first_unit, first_unit + out.size() / unit_bytes) from rows of codes: row r of the
/// layout is order.at(r) of `source`, zeros where that has no such row or no such k.
///
/// Shapes: source halves [half_rows, at most k]; out [n * unit_bytes].
/// Memory: 5 KiB of stack.
void marlin_from_rows(const MarlinLayout& layout, const RowOrder& order, const MatrixRows& source,
                      std::uint64_t first_unit, std::span<std::byte> out) noexcept;

/// Reads one row back, code by code through the layout's function.
///
/// Shapes: tiles [total_bytes]; out [at most k codes, whole bytes].
void marlin_to_row(const MarlinLayout& layout, std::uint64_t row, std::span<const std::byte> tiles,
                   std::span<std::byte> out) noexcept;

}  // namespace lode::layout
