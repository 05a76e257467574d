#include <algorithm>
#include <cmath>
#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/e8m0.h"
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

struct ScaleRow {
  const SourceScales& source;
  std::uint64_t row = 0;
};

// Block scales of one byte stand one a group: a copy with two strides.
void copy_row(const PanelLayout& layout, const PanelTile& tile, const ScaleRow& from,
              std::span<std::byte> panels, ScalesSeen& seen) noexcept {
  const Groups groups = groups_of(layout, tile);
  const SourceScales& source = from.source;
  const std::uint64_t step = source.k_first ? source.outer_stride_bytes : 1;
  const std::uint64_t per_block = kSuperBlockK / layout.shape().group_k;
  const bool e8m0 = source.format == formats::Format::kE8m0;
  std::uint64_t position =
      scale_position(source, block_of(layout.encoding(), source, from.row, tile.k_begin));
  bool nan = false, negative = false;
  // Offsets are stepped, not asked for: divisions would cost more than the copy.
  std::byte* const panel = panels.data() + layout.panel_offset(tile.matrix, from.row / kPanelRows) +
                           from.row % kPanelRows;
  std::uint64_t block = tile.k_begin / kSuperBlockK;
  for (std::uint64_t first = groups.begin; first < groups.end; first += per_block, ++block) {
    const std::uint64_t count = std::min(per_block, groups.end - first);
    const std::uint64_t code_lines = layout.shape().code_lines(layout.super_block_k(block));
    std::byte* to = panel + layout.super_block_offset(block) + code_lines * kernels::kLineBytes;
    for (std::uint64_t group = 0; group < count; ++group) {
      const std::byte scale = source.bytes[position];
      const auto code = std::to_integer<std::uint32_t>(scale);
      nan |= e8m0 ? code == formats::kE8m0Nan : (code & 0x7FU) == 0x7FU;
      negative |= !e8m0 && code > 0x80U && code != 0xFFU;
      *to = scale;
      to += kPanelRows;
      position += step;
    }
  }
  seen.finite &= !nan;
  seen.negative |= negative;
}

void widen_row(const PanelLayout& layout, const PanelTile& tile, const ScaleRow& from,
               std::span<std::byte> panels, ScalesSeen& seen) noexcept {
  const Groups groups = groups_of(layout, tile);
  for (std::uint64_t group = groups.begin; group < groups.end; ++group) {
    const std::uint64_t k = group * layout.shape().group_k;
    const BlockPlace block = block_of(layout.encoding(), from.source, from.row, k);
    const float scale = scale_at(from.source, scale_position(from.source, block));
    look_at(scale, seen);
    std::memcpy(panels.data() + layout.scale_offset(tile.matrix, from.row, group), &scale,
                sizeof scale);
  }
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
  ScalesSeen seen;
  for (std::uint64_t row = tile.row_begin; row < tile.row_end; ++row) {
    if (layout.shape().scale_bytes == 1) {
      copy_row(layout, tile, {source, row}, panels, seen);
    } else {
      widen_row(layout, tile, {source, row}, panels, seen);
    }
  }
  return seen;
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
  ScalesSeen seen;
  visit_scales(layout, tile, source, [&](std::uint64_t, std::uint64_t, float scale) {
    look_at(scale, seen);
    return false;
  });
  return seen;
}

}  // namespace lode::layout
