#pragma once

#include <cstdint>
#include <span>

#include "lode/base/bytes.h"
#include "lode/layout/row_shuffle.h"

namespace lode::layout {

//   block scales [M, C], one byte each, in tiles of T rows by 4 columns; a tile of 128 x 4, by row:
//
//   byte      0..3      4..7       8..11      12..15
//     0       row 0     row 32     row 64     row 96       four scales of a row side by side
//    16       row 1     row 33     row 65     row 97
//    ...
//   496       row 31    row 63     row 95     row 127      512 bytes; the next tile is to the right
//
//   tile          rows T  stripe S   read by
//   kScales128x4     128        32   CUTLASS and TRT-LLM block-scaled kernels
//   kScales8x4         8         8   the same, scales of few activations
//   kScales64x4       64        16   SM90 mixed input (FlashInfer 0.7)
//
//   (m, c) at (m/T * C'/4 + c/4) * 4T + (m%S) * 4T/S + (m%T)/S * 4 + c%4
//
// Padding: rows to a multiple of T, columns to C', a multiple of 4; zeros.
// Source: weight_layouts 2.2, 2.7; tests/golden/weight_layouts, swizzle_blockscale.

struct ScaleTile {
  std::uint64_t rows = 128;
  std::uint64_t stripe = 32;  // rows that lie one below the other in a tile

  friend bool operator==(const ScaleTile&, const ScaleTile&) = default;
};
inline constexpr ScaleTile kScales128x4{128, 32};
inline constexpr ScaleTile kScales8x4{8, 8};
inline constexpr ScaleTile kScales64x4{64, 16};
inline constexpr std::uint64_t kScaleTileColumns = 4;

/// A scale's place in its matrix.
struct ScalePlace {
  std::uint64_t row = 0;
  std::uint64_t column = 0;

  friend bool operator==(const ScalePlace&, const ScalePlace&) = default;
};

/// Where every scale of one matrix lies: coordinate -> byte, and back.
struct BlockScales {
  ScaleTile tile;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;

  constexpr std::uint64_t padded_rows() const noexcept { return align_up(rows, tile.rows); }
  constexpr std::uint64_t padded_columns() const noexcept {
    return align_up(columns, kScaleTileColumns);
  }
  constexpr std::uint64_t bytes() const noexcept { return padded_rows() * padded_columns(); }

  constexpr std::uint64_t offset(std::uint64_t row, std::uint64_t column) const noexcept {
    const std::uint64_t tile_idx =
        row / tile.rows * (padded_columns() / kScaleTileColumns) + column / kScaleTileColumns;
    const std::uint64_t in = row % tile.rows;
    return tile_idx * tile.rows * kScaleTileColumns +
           in % tile.stripe * (tile.rows / tile.stripe * kScaleTileColumns) +
           in / tile.stripe * kScaleTileColumns + column % kScaleTileColumns;
  }
  /// What lies at a byte; its row or column may be of the padding.
  constexpr ScalePlace at(std::uint64_t offset) const noexcept {
    const std::uint64_t tile_bytes = tile.rows * kScaleTileColumns;
    const std::uint64_t tile_idx = offset / tile_bytes;
    const std::uint64_t tiles_across = padded_columns() / kScaleTileColumns;
    const std::uint64_t line_bytes = tile.rows / tile.stripe * kScaleTileColumns;
    const std::uint64_t in = offset % tile_bytes;
    return {tile_idx / tiles_across * tile.rows +
                in % line_bytes / kScaleTileColumns * tile.stripe + in / line_bytes,
            tile_idx % tiles_across * kScaleTileColumns + in % kScaleTileColumns};
  }
};

/// Rows of tiles [first, first + out.size() / (tile.rows * row_bytes)) of the scales that `from`
/// orders; from.row_bytes is the padded columns.
///
/// Shapes: out [n * tile.rows * row_bytes], every byte written.
void block_scales_into(const OrderedRows& from, const ScaleTile& tile, std::uint64_t first,
                       std::span<std::byte> out) noexcept;

}  // namespace lode::layout
