#include "lode/kernels/scalar/relayout.h"

#include <cstring>

namespace lode::kernels::scalar {
namespace {

constexpr std::size_t kDwordBytes = 4;

// One super-block of one panel, and which of its rows and codes there are.
struct Block {
  const std::byte* from;
  std::byte* to;
  std::size_t num_rows;
  std::size_t k;
};

// Rows side by side: four bytes of a row are its lane of a line.
void rows_of_block(const CodeTile& tile, const Block& block) noexcept {
  const std::size_t row_bytes = (block.k * tile.shape.bits + 7) / 8;
  const std::size_t whole = row_bytes / kDwordBytes * kDwordBytes;
  for (std::size_t row = 0; row < block.num_rows; ++row) {
    const std::byte* const codes = block.from + row * tile.outer_stride_bytes;
    std::byte* lane = block.to + row * kDwordBytes;
    for (std::size_t at = 0; at < whole; at += kDwordBytes) {
      std::memcpy(lane, codes + at, kDwordBytes);
      lane += kLineBytes;
    }
    if (whole < row_bytes) std::memcpy(lane, codes + whole, row_bytes - whole);
  }
}

template <std::size_t kBytes>
void units_of_block(const CodeTile& tile, const Block& block) noexcept {
  const std::size_t row_bytes = (block.k * tile.shape.bits + 7) / 8;
  for (std::size_t at = 0; at < row_bytes; at += kBytes) {
    const std::byte* codes = block.from + at / kBytes * tile.outer_stride_bytes;
    std::byte* const line = block.to + at / kDwordBytes * kLineBytes + at % kDwordBytes;
    for (std::size_t row = 0; row < block.num_rows; ++row) {
      std::memcpy(line + row * kDwordBytes, codes, kBytes);
      codes += tile.inner_step_bytes;
    }
  }
}

template <class Function>
void for_each_block(const CodeTile& tile, std::size_t panel_step, std::size_t block_step,
                    Function function) noexcept {
  for (std::size_t panel = 0; panel < tile.num_panels(); ++panel) {
    const std::byte* from = tile.source + panel * panel_step;
    std::byte* to = tile.panels + panel * tile.panel_stride_bytes;
    for (std::size_t k = 0; k < tile.k; k += kSuperBlockK) {
      const std::size_t here = tile.k - k < kSuperBlockK ? tile.k - k : kSuperBlockK;
      std::memset(to, 0, tile.shape.code_lines(here) * kLineBytes);
      function(tile, Block{from, to, tile.rows_of(panel), here});
      from += block_step;
      to += tile.shape.super_block_bytes();
    }
  }
}

// The scales of one super-block of one panel, whose first group is the source's `group`-th.
void scales_of_block(const ScaleTile& tile, const Block& block, std::size_t group,
                     ScaleBytesSeen& seen) noexcept {
  const PanelShape& shape = tile.shape;
  std::memset(block.to, 0, shape.scale_lines(block.k) * kLineBytes);
  for (std::size_t row = 0; row < block.num_rows; ++row) {
    const std::byte* const from = block.from + row * tile.row_step_bytes;
    for (std::size_t i = 0; i < shape.groups(block.k); ++i) {
      const std::byte scale = from[(group + i) * tile.group_step_bytes];
      block.to[i * kPanelRows + row] = scale;
      const auto code = static_cast<std::uint32_t>(scale);
      seen.nan |= is_nan_scale(shape.kind, code);
      seen.negative |= is_negative_scale(shape.kind, code);
    }
  }
}

}  // namespace

void rows_to_lines(const CodeTile& tile) noexcept {
  for_each_block(tile, kPanelRows * tile.outer_stride_bytes, kSuperBlockK * tile.shape.bits / 8,
                 rows_of_block);
}

void units_to_lines(const CodeTile& tile) noexcept {
  const std::size_t unit_bits = tile.shape.bits < 8 ? 8 : tile.shape.bits;
  const std::size_t units = kSuperBlockK * tile.shape.bits / unit_bits;
  const auto each = [&](auto units_of) {
    for_each_block(tile, kPanelRows * tile.inner_step_bytes, units * tile.outer_stride_bytes,
                   units_of);
  };
  switch (unit_bits) {
    case 8:
      return each(units_of_block<1>);
    case 16:
      return each(units_of_block<2>);
    default:
      return each(units_of_block<4>);
  }
}

ScaleBytesSeen scales_to_lines(const ScaleTile& tile) noexcept {
  const PanelShape& shape = tile.shape;
  ScaleBytesSeen seen;
  for (std::size_t row = 0; row < tile.num_rows; row += kPanelRows) {
    const std::size_t rows = tile.num_rows - row < kPanelRows ? tile.num_rows - row : kPanelRows;
    std::byte* to = tile.panels + row / kPanelRows * tile.panel_stride_bytes;
    for (std::size_t k = 0; k < tile.k; k += kSuperBlockK) {
      const std::size_t here = tile.k - k < kSuperBlockK ? tile.k - k : kSuperBlockK;
      std::byte* const lines = to + shape.code_lines(here) * kLineBytes;
      scales_of_block(tile, {tile.source + row * tile.row_step_bytes, lines, rows, here},
                      k / shape.group_k, seen);
      to += shape.super_block_bytes();
    }
  }
  return seen;
}

}  // namespace lode::kernels::scalar
