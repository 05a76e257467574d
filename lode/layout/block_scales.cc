#include "lode/layout/block_scales.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

// What is made at once: a line of each of 128 rows, so that all of it lies in the first cache.
constexpr std::uint64_t kStripColumns = 64;
constexpr std::uint64_t kStripRows = 128;

using Strip = std::array<std::byte, kStripColumns>;

/// Rows of a row of tiles in the order in which they lie there: the i-th has bytes 4i to 4i + 3 of
/// every tile.
struct StripRows {
  std::array<std::span<const std::byte>, kStripRows> rows;
  std::array<const formats::CodeMap*, kStripRows> maps{};
  std::array<bool, kStripRows> there{};
  std::uint64_t count = 0;
};

StripRows rows_from(const OrderedRows& from, const ScaleTile& tile, std::uint64_t first_row,
                    std::uint64_t first) noexcept {
  StripRows strip;
  strip.count = std::min(kStripRows, tile.rows - first);
  const std::uint64_t lanes = tile.rows / tile.stripe;
  for (std::uint64_t i = 0; i < strip.count; ++i) {
    const std::uint64_t in = (first + i) % lanes * tile.stripe + (first + i) / lanes;
    strip.there[i] = first_row + in < from.order.rows();
    if (!strip.there[i]) continue;
    const HalfRow at = from.order.at(first_row + in);
    strip.rows[i] = from.rows.row(at);
    strip.maps[i] = from.byte_maps[at.half];
  }
  return strip;
}

/// Columns [begin, begin + 64) of a row that is short, turned or not there at all.
Strip made_strip(const StripRows& strip, std::uint64_t i, std::uint64_t begin,
                 std::byte padding) noexcept {
  Strip made;
  made.fill(strip.there[i] ? padding : std::byte{});
  const std::span<const std::byte> row = strip.rows[i];
  const std::uint64_t left = row.size() > begin ? row.size() - begin : 0;
  const std::uint64_t size = std::min(kStripColumns, left);
  if (size == 0) return made;
  std::memcpy(made.data(), row.data() + begin, size);
  if (const formats::CodeMap* const map = strip.maps[i]; map != nullptr) {
    kernels::active_or_plainest().map_codes(*map, made.data(), size, made.data());
  }
  return made;
}

/// `num_columns` columns from `begin` on, into tiles that are `step` bytes apart.
void strip_into(const StripRows& strip, std::uint64_t begin, std::uint64_t num_columns,
                std::byte padding, std::byte* out, std::uint64_t step) noexcept {
  std::array<Strip, kStripRows> room;
  std::array<const std::byte*, kStripRows> source;
  for (std::uint64_t i = 0; i < strip.count; ++i) {
    const bool as_it_is = strip.maps[i] == nullptr && strip.rows[i].size() >= begin + num_columns;
    if (!as_it_is) room[i] = made_strip(strip, i, begin, padding);
    source[i] = as_it_is ? strip.rows[i].data() + begin : room[i].data();
  }
  for (std::uint64_t column = 0; column < num_columns; column += kScaleTileColumns, out += step) {
    for (std::uint64_t i = 0; i < strip.count; ++i) {
      std::memcpy(out + i * kScaleTileColumns, source[i] + column, kScaleTileColumns);
    }
  }
}

}  // namespace

void block_scales_into(const OrderedRows& from, const ScaleTile& tile, std::uint64_t first,
                       std::span<std::byte> out) noexcept {
  const std::uint64_t unit_bytes = tile.rows * from.row_bytes;
  const std::uint64_t step = tile.rows * kScaleTileColumns;
  for (std::uint64_t unit = 0; unit < out.size() / unit_bytes; ++unit) {
    std::byte* const tiles = out.data() + unit * unit_bytes;
    for (std::uint64_t i = 0; i < tile.rows; i += kStripRows) {
      const StripRows strip = rows_from(from, tile, (first + unit) * tile.rows, i);
      for (std::uint64_t begin = 0; begin < from.row_bytes; begin += kStripColumns) {
        strip_into(strip, begin, std::min(kStripColumns, from.row_bytes - begin), from.padding,
                   tiles + i * kScaleTileColumns + begin / kScaleTileColumns * step, step);
      }
    }
  }
}

}  // namespace lode::layout
