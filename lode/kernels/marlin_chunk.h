#pragma once

#include <cstdint>

#include "lode/kernels/marlin_tile.h"

// How the ISAs walk a column of tiles: 64 bytes of every row at a time, which are whole lines of
// memory if the rows begin on one. At the edges the rows are copied to a little room of zeros.

namespace lode::kernels {

// Unnamed: every ISA has its own, and no weak symbol of it exists.
namespace {

inline constexpr std::size_t kMostTileRows = 64;

/// 64 bytes of every row of a tile, and where the tiles that they make go.
struct MarlinChunk {
  const std::byte* rows[kMostTileRows];
  std::byte* tiles;
  std::size_t tile_step_bytes;
  std::size_t num_tiles;  // 64 / tile_row_bytes, or fewer at the end
};

/// The rows with what they have of the chunk at byte `at`, zeros for the rest.
LODE_KERNEL_INLINE void copy_edge(const MarlinColumn& column, std::size_t at, std::byte* room,
                                  MarlinChunk& chunk) noexcept {
  const std::size_t end =
      column.row_bytes < column.taken_bytes() ? column.row_bytes : column.taken_bytes();
  const std::size_t left = at < end ? end - at : 0;
  const std::size_t bytes = left < kLineBytes ? left : kLineBytes;
  for (std::size_t row = 0; row < column.shape.tile_rows(); ++row) {
    std::byte* const to = room + row * kLineBytes;
    const bool there = column.rows[row] != nullptr;
    __builtin_memset(to, 0, kLineBytes);
    if (there && bytes > 0) __builtin_memcpy(to, column.rows[row] + at, bytes);
    chunk.rows[row] = to;
  }
}

/// Calls make(chunk) for all tiles of the column; the shape is a constant of the caller's.
template <class Make>
LODE_KERNEL_INLINE void for_each_chunk(const MarlinColumn& column, const MarlinShape& shape,
                                       Make make) noexcept {
  alignas(64) std::byte room[kMostTileRows * kLineBytes];
  const std::size_t tiles = kLineBytes / shape.tile_row_bytes();
  bool all_there = true;
  for (std::size_t row = 0; row < shape.tile_rows(); ++row) {
    all_there &= column.rows[row] != nullptr;
  }
  MarlinChunk chunk;
  chunk.tile_step_bytes = column.tile_step_bytes;
  for (std::size_t tile = 0; tile < column.num_tiles; tile += tiles) {
    const std::size_t at = tile * shape.tile_row_bytes(), left = column.num_tiles - tile;
    chunk.tiles = column.tiles + tile * column.tile_step_bytes;
    chunk.num_tiles = left < tiles ? left : tiles;
    if (all_there && left >= tiles && at + kLineBytes <= column.row_bytes) {
      for (std::size_t row = 0; row < shape.tile_rows(); ++row) {
        chunk.rows[row] = column.rows[row] + at;
      }
    } else {
      copy_edge(column, at, room, chunk);
    }
    make(chunk);
  }
}

}  // namespace
}  // namespace lode::kernels
