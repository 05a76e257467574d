#include "lode/layout/scatter.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lode/base/check.h"

namespace lode::layout {
namespace {

using kernels::kLineBytes;
using kernels::kPanelRows;
using kernels::kSuperBlockK;

constexpr std::size_t kDwordBytes = 4;

// One super-block of one panel, and which of its rows there are.
struct Block {
  std::uint64_t source_row = 0;  // from the tile's first row
  std::uint64_t source_k = 0;    // from the tile's first k
  std::uint64_t num_rows = 0;    // <= 16
  std::uint64_t num_k = 0;       // <= 128
  std::byte* out = nullptr;
};

template <class Function>
void for_each_block(const PanelLayout& layout, const PanelTile& tile, std::span<std::byte> panels,
                    Function function) {
  LODE_CHECK(panels.size() >= layout.total_bytes(), "the panels are smaller than their layout");
  LODE_CHECK(tile.row_begin % kPanelRows == 0 && tile.k_begin % kSuperBlockK == 0 &&
                 tile.row_end <= layout.rows() && tile.k_end <= layout.k(),
             "a tile begins at a panel and a super-block of its matrix");
  for (std::uint64_t row = tile.row_begin; row < tile.row_end; row += kPanelRows) {
    std::byte* const panel = panels.data() + layout.panel_offset(tile.matrix, row / kPanelRows);
    for (std::uint64_t k = tile.k_begin; k < tile.k_end; k += kSuperBlockK) {
      function(Block{.source_row = row - tile.row_begin,
                     .source_k = k - tile.k_begin,
                     .num_rows = std::min<std::uint64_t>(kPanelRows, tile.row_end - row),
                     .num_k = std::min<std::uint64_t>(kSuperBlockK, tile.k_end - k),
                     .out = panel + layout.super_block_offset(k / kSuperBlockK)});
    }
  }
}

// Sixteen rows side by side become lines: a transposition of dwords.
void rows_to_lines(const kernels::PanelShape& shape, const SourceCodes& source,
                   const Block& block) noexcept {
  const std::size_t row_bytes = (block.num_k * shape.bits + 7) / 8;
  const std::size_t whole_lines = row_bytes / kDwordBytes;
  const std::byte* const from = source.bytes.data() + block.source_row * source.outer_stride_bytes +
                                block.source_k * shape.bits / 8;
  if (block.num_rows < kPanelRows) {
    std::memset(block.out, 0, shape.code_lines(block.num_k) * kLineBytes);
  }
  for (std::size_t row = 0; row < block.num_rows; ++row) {
    const std::byte* const codes = from + row * source.outer_stride_bytes;
    std::byte* const out = block.out + row * kDwordBytes;
    for (std::size_t line = 0; line < whole_lines; ++line) {
      std::memcpy(out + line * kLineBytes, codes + line * kDwordBytes, kDwordBytes);
    }
    const std::size_t rest = row_bytes % kDwordBytes;
    if (rest == 0) continue;
    std::array<std::byte, kDwordBytes> last{};
    std::memcpy(last.data(), codes + whole_lines * kDwordBytes, rest);
    std::memcpy(out + whole_lines * kLineBytes, last.data(), kDwordBytes);
  }
}

// Units of k, all rows of each side by side, become lines.
template <std::size_t kUnitBytes>
void units_to_lines(const kernels::PanelShape& shape, const SourceCodes& source,
                    const Block& block) noexcept {
  constexpr std::size_t kUnitsPerLine = kDwordBytes / kUnitBytes;
  const std::size_t codes_per_unit = kUnitBytes * 8 / shape.bits;
  const std::size_t num_units = (block.num_k + codes_per_unit - 1) / codes_per_unit;
  const std::byte* const from = source.bytes.data() +
                                block.source_k / codes_per_unit * source.outer_stride_bytes +
                                block.source_row * source.inner_step_bytes;
  const std::size_t lines = shape.code_lines(block.num_k);
  if (block.num_rows < kPanelRows || num_units % kUnitsPerLine != 0) {
    std::memset(block.out, 0, lines * kLineBytes);
  }
  for (std::size_t unit = 0; unit < num_units; ++unit) {
    const std::byte* const codes = from + unit * source.outer_stride_bytes;
    std::byte* const out =
        block.out + unit / kUnitsPerLine * kLineBytes + unit % kUnitsPerLine * kUnitBytes;
    for (std::size_t row = 0; row < block.num_rows; ++row) {
      std::memcpy(out + row * kDwordBytes, codes + row * source.inner_step_bytes, kUnitBytes);
    }
  }
}

void check_source(const kernels::PanelShape& shape, const PanelTile& tile,
                  const SourceCodes& source) {
  const std::uint64_t rows = tile.row_end - tile.row_begin;
  const std::uint64_t k_bytes = ((tile.k_end - tile.k_begin) * shape.bits + 7) / 8;
  const std::uint64_t unit_bytes = std::max<std::uint64_t>(1, shape.bits / 8);
  const std::uint64_t need = source.k_first
                                 ? (k_bytes / unit_bytes - 1) * source.outer_stride_bytes +
                                       (rows - 1) * source.inner_step_bytes + unit_bytes
                                 : (rows - 1) * source.outer_stride_bytes + k_bytes;
  LODE_CHECK(source.bytes.size() >= need, "a tile's source is shorter than the tile");
}

}  // namespace

void scatter_codes(const PanelLayout& layout, const PanelTile& tile, const SourceCodes& source,
                   std::span<std::byte> panels) noexcept {
  const kernels::PanelShape& shape = layout.shape();
  check_source(shape, tile, source);
  for_each_block(layout, tile, panels, [&](const Block& block) {
    if (!source.k_first) return rows_to_lines(shape, source, block);
    switch (shape.bits) {
      case 32:
        return units_to_lines<4>(shape, source, block);
      case 16:
        return units_to_lines<2>(shape, source, block);
      default:
        return units_to_lines<1>(shape, source, block);
    }
  });
}

}  // namespace lode::layout
