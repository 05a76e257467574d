#include "lode/layout/marlin_weights.h"

#include <algorithm>
#include <array>
#include <string>

#include "lode/base/fmt.h"
#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

// An engine's op asks for whole groups of 64 rows, also where tiles have 32.
constexpr std::uint64_t kRowsWanted = 64;
constexpr std::uint64_t kMostTileRows = 64;

// A column of tiles is as many rows of the source as their lines stay in the caches of a core, and
// what it writes is one piece a unit. So the rows that a column shares are found once.
using Rows = std::array<const std::byte*, kMostTileRows>;

}  // namespace

Result<MarlinLayout> MarlinLayout::make(std::uint64_t rows, std::uint64_t k,
                                        const kernels::MarlinShape& shape) {
  const auto refuse = [](std::string thing, std::string wanted, std::uint64_t found) {
    return Error{.code = Code::kUnsupported,
                 .thing = std::move(thing),
                 .wanted = std::move(wanted),
                 .found = std::to_string(found)};
  };
  if (shape.bits != 4 && shape.bits != 8) {
    return refuse("bits of a code in Marlin tiles", "4 or 8", shape.bits);
  }
  if (rows % kRowsWanted != 0 || rows == 0) {
    return refuse("rows of a matrix in Marlin tiles", "a multiple of 64", rows);
  }
  if (k % shape.tile_k() != 0 || k == 0) {
    return refuse("k of a matrix in Marlin tiles", fmt::format("a multiple of {}", shape.tile_k()),
                  k);
  }
  if (rows > ~std::uint64_t{0} / k / 8) {
    return refuse("rows of a matrix in Marlin tiles", fmt::format("fewer, with a k of {}", k),
                  rows);
  }
  MarlinLayout layout;
  layout.shape_ = shape;
  layout.rows_ = rows;
  layout.k_ = k;
  return layout;
}

CodePlace MarlinLayout::code(const MatrixSpot& spot) const noexcept {
  const std::uint64_t tile_rows = shape_.tile_rows(), tile_k = shape_.tile_k();
  const std::uint64_t tile = spot.k / tile_k * tiles_per_unit() + spot.row / tile_rows;
  const std::uint32_t bit =
      kernels::marlin_code(shape_, {static_cast<std::uint32_t>(spot.row % tile_rows),
                                    static_cast<std::uint32_t>(spot.k % tile_k)}) *
      shape_.bits;
  return {tile * shape_.tile_bytes() + bit / 8, bit % 8};
}

MatrixSpot MarlinLayout::at(const CodePlace& place) const noexcept {
  const std::uint64_t tile = place.offset_bytes / shape_.tile_bytes();
  const auto bit = static_cast<std::uint32_t>(place.offset_bytes % shape_.tile_bytes() * 8);
  const kernels::MarlinSpot spot =
      kernels::marlin_spot(shape_, (bit + place.shift_bits) / shape_.bits);
  return {tile % tiles_per_unit() * shape_.tile_rows() + spot.row,
          tile / tiles_per_unit() * shape_.tile_k() + spot.k};
}

void marlin_from_rows(const MarlinLayout& layout, const RowOrder& order, const MatrixRows& source,
                      std::uint64_t first_unit, std::span<std::byte> out) noexcept {
  const kernels::MarlinShape& shape = layout.shape();
  const kernels::KernelTable& isa = kernels::active_or_plainest();
  const std::uint64_t begin = first_unit * shape.tile_row_bytes();
  Rows rows{};
  kernels::MarlinColumn column;
  column.shape = shape;
  column.rows = rows.data();
  column.row_bytes = source.row_bytes - std::min(begin, source.row_bytes);
  column.num_tiles = out.size() / layout.unit_bytes();
  column.tile_step_bytes = layout.unit_bytes();
  for (std::uint64_t tile = 0; tile < layout.tiles_per_unit(); ++tile) {
    for (std::uint64_t i = 0; i < shape.tile_rows(); ++i) {
      const auto row = source.row(order.at(tile * shape.tile_rows() + i));
      rows[i] = row.empty() || column.row_bytes == 0 ? nullptr : row.data() + begin;
    }
    column.tiles = out.data() + tile * shape.tile_bytes();
    isa.rows_to_marlin(column);
  }
}

void marlin_to_row(const MarlinLayout& layout, std::uint64_t row, std::span<const std::byte> tiles,
                   std::span<std::byte> out) noexcept {
  const std::uint32_t bits = layout.shape().bits, mask = (1U << bits) - 1U;
  const std::uint64_t per_byte = 8 / bits;
  for (std::uint64_t at = 0; at < out.size(); ++at) {
    std::uint32_t byte = 0;
    for (std::uint64_t i = 0; i < per_byte; ++i) {
      const CodePlace place = layout.code({row, at * per_byte + i});
      const auto code = static_cast<std::uint32_t>(tiles[place.offset_bytes]) >> place.shift_bits;
      byte |= (code & mask) << (i * bits);
    }
    out[at] = static_cast<std::byte>(byte);
  }
}

}  // namespace lode::layout
