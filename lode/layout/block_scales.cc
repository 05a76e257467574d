#include "lode/layout/block_scales.h"

#include <algorithm>
#include <cstring>

namespace lode::layout {
namespace {

/// One row into its tiles, `step` bytes apart.
void row_into_tiles(std::span<const std::byte> row, const std::uint8_t* map, std::uint64_t step,
                    std::byte* out) noexcept {
  const std::uint64_t whole = row.size() / kScaleTileColumns;
  if (map == nullptr) {
    for (std::uint64_t tile = 0; tile < whole; ++tile) {
      std::memcpy(out + tile * step, row.data() + tile * kScaleTileColumns, kScaleTileColumns);
    }
  }
  const std::uint64_t done = map == nullptr ? whole * kScaleTileColumns : 0;
  for (std::uint64_t column = done; column < row.size(); ++column) {
    const std::byte code = row[column];
    out[column / kScaleTileColumns * step + column % kScaleTileColumns] =
        map == nullptr ? code : static_cast<std::byte>(map[static_cast<std::uint8_t>(code)]);
  }
}

}  // namespace

void block_scales_into(const OrderedRows& from, const ScaleTile& tile, std::uint64_t first,
                       std::span<std::byte> out) noexcept {
  const std::uint64_t unit_bytes = tile.rows * from.row_bytes;
  const std::uint64_t num_rows = from.order.rows();
  const BlockScales places{tile, tile.rows, from.row_bytes};
  for (std::uint64_t unit = 0; unit < out.size() / unit_bytes; ++unit) {
    const auto tiles = out.subspan(unit * unit_bytes, unit_bytes);
    const std::uint64_t first_row = (first + unit) * tile.rows;
    const bool whole = first_row + tile.rows <= num_rows && from.padding == std::byte{} &&
                       from.rows.row_bytes == from.row_bytes &&
                       from.rows.half_rows == from.order.half_rows;
    if (!whole) std::fill(tiles.begin(), tiles.end(), std::byte{});
    const std::uint64_t count =
        first_row < num_rows ? std::min(tile.rows, num_rows - first_row) : 0;
    for (std::uint64_t in = 0; in < count; ++in) {
      std::byte* const begin = tiles.data() + places.offset(in, 0);
      const HalfRow at = from.order.at(first_row + in);
      const auto row = from.rows.row(at);
      row_into_tiles(row, from.byte_maps[at.half], tile.rows * kScaleTileColumns, begin);
      if (from.padding == std::byte{}) continue;
      for (std::uint64_t column = row.size(); column < from.row_bytes; ++column) {
        tiles[places.offset(in, column)] = from.padding;
      }
    }
  }
}

}  // namespace lode::layout
