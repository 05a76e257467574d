#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/dequantise.h"
#include "lode/kernels/kernel_table.h"
#include "lode/layout/scatter.h"

namespace lode::layout {
namespace {

using kernels::kPanelRows;
using kernels::kSuperBlockK;

float scale_at(const SourceScales& source, std::uint64_t position) noexcept {
  const std::uint64_t bytes = formats::info(source.format).bits / 8;
  return formats::number_at(source.format, source.bytes.subspan(position, bytes), 0);
}

// The groups of the panel that a tile's k covers.
struct Groups {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
Groups groups_of(const PanelLayout& layout, const PanelTile& tile) noexcept {
  const std::uint64_t unit = layout.shape().group_k;
  return {tile.k_begin / unit, (tile.k_end + unit - 1) / unit};
}

void look_at(float scale, ScalesSeen& seen) noexcept {
  seen.finite &= std::isfinite(scale);
  seen.negative |= scale < 0.0F;
}

// Scales of one byte stand one a group: a copy with two strides.
ScalesSeen copy_bytes(const PanelLayout& layout, const PanelTile& tile, const SourceScales& source,
                      std::span<std::byte> panels) noexcept {
  const Groups groups = groups_of(layout, tile);
  const std::uint64_t rows = tile.row_end - tile.row_begin;
  const std::uint64_t row_step =
      source.row_step * (source.k_first ? source.inner_step_bytes : source.outer_stride_bytes);
  const std::uint64_t group_step = source.k_first ? source.outer_stride_bytes : 1;
  const std::uint64_t first =
      scale_position(source, block_of(layout.encoding(), source, tile.row_begin, tile.k_begin));
  const std::uint64_t last =
      first + (rows - 1) * row_step + (groups.end - groups.begin - 1) * group_step;
  LODE_CHECK(last < source.bytes.size(), "a tile's scales are fewer than the tile needs");
  const std::uint64_t begin = layout.panel_offset(tile.matrix, tile.row_begin / kPanelRows) +
                              layout.super_block_offset(tile.k_begin / kSuperBlockK);
  const auto seen = kernels::active_or_plainest().scales_to_lines(
      {.shape = layout.shape(),
       .source = source.bytes.data() + first,
       .row_step_bytes = row_step,
       .group_step_bytes = group_step,
       .num_rows = rows,
       .k = tile.k_end - tile.k_begin,
       .panels = panels.data() + begin,
       .panel_stride_bytes = layout.panel_stride_bytes()});
  return {.finite = !seen.nan, .negative = seen.negative};
}

// The scales of one group for the rows of a panel, as floats: one line. Divisions are made once a
// panel and once a block, not once a scale.
class ScaleLines {
 public:
  ScaleLines(const formats::Encoding& encoding, const SourceScales& source)
      : encoding_(encoding),
        source_(source),
        column_step_(source.k_first ? source.outer_stride_bytes
                                    : formats::info(source.format).bits / 8) {}

  void begin_panel(std::uint64_t row, std::uint64_t num_rows) noexcept {
    num_rows_ = num_rows;
    column_ = kNoColumn;
    line_ = {};
    for (std::uint64_t i = 0; i < num_rows; ++i) {
      const std::uint64_t block = block_of(encoding_, source_, row + i, 0).row;
      positions_[i] = scale_position(source_, {block, source_.first_column});
    }
  }

  const std::array<float, kPanelRows>& at(std::uint64_t k) noexcept {
    const std::uint64_t column = block_of(encoding_, source_, 0, k).column;
    if (column == column_) return line_;
    column_ = column;
    const std::uint64_t offset = (column - source_.first_column) * column_step_;
    for (std::uint64_t i = 0; i < num_rows_; ++i) {
      const bool shared = i > 0 && positions_[i] == positions_[i - 1];
      line_[i] = shared ? line_[i - 1] : scale_at(source_, positions_[i] + offset);
      look_at(line_[i], seen_);
    }
    return line_;
  }

  ScalesSeen seen() const noexcept { return seen_; }

 private:
  static constexpr std::uint64_t kNoColumn = ~std::uint64_t{0};

  const formats::Encoding& encoding_;
  const SourceScales& source_;
  std::uint64_t column_step_;
  std::uint64_t num_rows_ = 0;
  std::uint64_t column_ = kNoColumn;
  std::array<std::uint64_t, kPanelRows> positions_{};  // of column first_column
  std::array<float, kPanelRows> line_{};               // zero for rows that there are not
  ScalesSeen seen_;
};

// Takes the first row of a panel, a group and its line.
template <typename Visit>
ScalesSeen visit_lines(const PanelLayout& layout, const PanelTile& tile, const SourceScales& source,
                       Visit&& visit) noexcept {
  const Groups groups = groups_of(layout, tile);
  ScaleLines lines(layout.encoding(), source);
  for (std::uint64_t row = tile.row_begin; row < tile.row_end; row += kPanelRows) {
    lines.begin_panel(row, std::min<std::uint64_t>(kPanelRows, tile.row_end - row));
    for (std::uint64_t group = groups.begin; group < groups.end; ++group) {
      visit(row, group, lines.at(group * layout.shape().group_k));
    }
  }
  return lines.seen();
}

// Until `visit` says true: takes a row, a group and the scale there.
template <typename Visit>
void visit_scales(const PanelLayout& layout, const PanelTile& tile, const SourceScales& source,
                  Visit&& visit) noexcept {
  const Groups groups = groups_of(layout, tile);
  for (std::uint64_t row = tile.row_begin; row < tile.row_end; ++row) {
    for (std::uint64_t group = groups.begin; group < groups.end; ++group) {
      const BlockPlace block =
          block_of(layout.encoding(), source, row, group * layout.shape().group_k);
      if (visit(row, group, scale_at(source, scale_position(source, block)))) return;
    }
  }
}

}  // namespace

BlockPlace block_of(const formats::Encoding& encoding, const SourceScales& source,
                    std::uint64_t row, std::uint64_t k) noexcept {
  const std::uint64_t stored_row = source.row_origin + row * source.row_step;
  return {encoding.block_rows == formats::kWhole ? 0 : stored_row / encoding.block_rows,
          encoding.block_k == formats::kWhole ? 0 : k / encoding.block_k};
}

std::uint64_t scale_position(const SourceScales& source, const BlockPlace& block) noexcept {
  const std::uint64_t row = block.row - source.first_row;
  const std::uint64_t column = block.column - source.first_column;
  if (source.k_first) return column * source.outer_stride_bytes + row * source.inner_step_bytes;
  return row * source.outer_stride_bytes + column * (formats::info(source.format).bits / 8);
}

ScalesSeen scatter_scales(const PanelLayout& layout, const PanelTile& tile,
                          const SourceScales& source, std::span<std::byte> panels) noexcept {
  LODE_CHECK(panels.size() >= layout.total_bytes(), "the panels are smaller than their layout");
  LODE_CHECK(tile.row_begin % kPanelRows == 0 && tile.k_begin % kSuperBlockK == 0,
             "a tile begins at a panel and a super-block of its matrix");
  if (layout.shape().scale_bytes == 1) return copy_bytes(layout, tile, source, panels);
  return visit_lines(layout, tile, source, [&](std::uint64_t row, std::uint64_t group, auto& line) {
    std::memcpy(panels.data() + layout.scale_offset(tile.matrix, row, group), line.data(),
                sizeof line);
  });
}

std::optional<BadScale> find_bad_scale(const PanelLayout& layout, const PanelTile& tile,
                                       const SourceScales& source) noexcept {
  std::optional<BadScale> bad;
  visit_scales(layout, tile, source, [&](std::uint64_t row, std::uint64_t group, float scale) {
    if (!std::isfinite(scale)) bad = BadScale{row, group, scale};
    return bad.has_value();
  });
  return bad;
}

ScalesSeen look_at_scales(const PanelLayout& layout, const PanelTile& tile,
                          const SourceScales& source) noexcept {
  return visit_lines(layout, tile, source, [](std::uint64_t, std::uint64_t, auto&) {});
}

}  // namespace lode::layout
