#include "lode/kernels/scalar/marlin.h"

#include <cstring>

namespace lode::kernels::scalar {
namespace {

// What one row has in a tile goes to its places, which are zero so far.
void scatter_row(const MarlinShape& shape, const std::byte* codes, std::size_t bytes,
                 std::uint32_t row, std::byte* tile) noexcept {
  const auto per_byte = static_cast<std::uint32_t>(8 / shape.bits);
  for (std::uint32_t at = 0; at < bytes; ++at) {
    const auto byte = static_cast<std::uint32_t>(codes[at]);
    for (std::uint32_t i = 0; i < per_byte; ++i) {
      const std::uint32_t code = byte >> (i * shape.bits) & ((1U << shape.bits) - 1U);
      const std::uint32_t place = marlin_code(shape, {row, at * per_byte + i}) * shape.bits;
      tile[place / 8] |= static_cast<std::byte>(code << place % 8);
    }
  }
}

}  // namespace

void rows_to_marlin(const MarlinColumn& column) noexcept {
  const MarlinShape& shape = column.shape;
  for (std::size_t i = 0; i < column.num_tiles; ++i) {
    std::byte* const tile = column.tiles + i * column.tile_step_bytes;
    std::memset(tile, 0, shape.tile_bytes());
    const std::size_t begin = i * shape.tile_row_bytes();
    if (begin >= column.row_bytes) continue;
    const std::size_t left = column.row_bytes - begin;
    const std::size_t bytes = left < shape.tile_row_bytes() ? left : shape.tile_row_bytes();
    for (std::uint32_t row = 0; row < shape.tile_rows(); ++row) {
      if (column.rows[row] != nullptr) {
        scatter_row(shape, column.rows[row] + begin, bytes, row, tile);
      }
    }
  }
}

void scales_to_columns(const ScaleColumns& scales) noexcept {
  for (std::size_t column = 0; column < scales.num_columns; ++column) {
    const std::size_t there = scales.rows[column] == nullptr ? 0 : scales.row_bytes;
    for (std::size_t group = 0; group < scales.num_groups; ++group) {
      const std::byte scale = group < there ? scales.rows[column][group] : std::byte{0};
      scales.out[group * scales.out_step_bytes + column] =
          static_cast<std::byte>(scales.tables[column][static_cast<std::uint8_t>(scale)]);
    }
  }
}

}  // namespace lode::kernels::scalar
