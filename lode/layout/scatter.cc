#include "lode/layout/scatter.h"

#include <algorithm>

#include "lode/base/check.h"
#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

using kernels::kPanelRows;
using kernels::kSuperBlockK;

void check_tile(const PanelLayout& layout, const PanelTile& tile,
                std::span<const std::byte> panels) {
  LODE_CHECK(panels.size() >= layout.total_bytes(), "the panels are smaller than their layout");
  LODE_CHECK(tile.row_begin % kPanelRows == 0 && tile.k_begin % kSuperBlockK == 0 &&
                 tile.row_begin < tile.row_end && tile.k_begin < tile.k_end &&
                 tile.row_end <= layout.rows() && tile.k_end <= layout.k(),
             "a tile begins at a panel and a super-block of its matrix");
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
  check_tile(layout, tile, panels);
  check_source(layout.shape(), tile, source);
  const std::uint64_t begin = layout.panel_offset(tile.matrix, tile.row_begin / kPanelRows) +
                              layout.super_block_offset(tile.k_begin / kSuperBlockK);
  const kernels::CodeTile codes{.shape = layout.shape(),
                                .source = source.bytes.data(),
                                .outer_stride_bytes = source.outer_stride_bytes,
                                .inner_step_bytes = source.inner_step_bytes,
                                .num_rows = tile.row_end - tile.row_begin,
                                .k = tile.k_end - tile.k_begin,
                                .panels = panels.data() + begin,
                                .panel_stride_bytes = layout.panel_stride_bytes()};
  const kernels::KernelTable& table = kernels::active_or_plainest();
  if (source.k_first) {
    table.units_to_lines(codes);
  } else {
    table.rows_to_lines(codes);
  }
}

}  // namespace lode::layout
