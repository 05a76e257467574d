#include "lode/loader/extents.h"

#include <algorithm>

namespace lode::loader {
namespace {

// `count` runs of `bytes`, a stride apart: read as one if at least half of what lies between their
// ends is wanted (the other half is often the other matrix of a pair), else run by run.
SlotData runs(const Region& region, std::uint64_t offset, std::uint64_t bytes,
              std::uint64_t count) {
  SlotData data;
  data.extent.shard = region.shard;
  data.extent.offset_bytes = region.offset_bytes + offset;
  const std::uint64_t stride = region.outer_stride_bytes;
  if (count == 1 || bytes >= stride / 2) {
    data.extent.bytes = (count - 1) * stride + bytes;
    data.outer_stride_bytes = stride;
    return data;
  }
  data.extent.bytes = bytes;
  data.extent.count = count;
  data.extent.stride_bytes = stride;
  data.outer_stride_bytes = bytes;
  return data;
}

}  // namespace

std::uint64_t unit_bytes(formats::Format element) noexcept {
  return std::max<std::uint64_t>(1, formats::info(element).bits / 8);
}

SlotData codes_of(const MatrixSource& source, const layout::PanelTile& tile) {
  const Region& region = source.codes;
  const std::uint64_t bits = formats::info(source.encoding.element).bits;
  const std::uint64_t rows = tile.row_end - tile.row_begin;
  const std::uint64_t k_bytes = ((tile.k_end - tile.k_begin) * bits + 7) / 8;
  const std::uint64_t k_offset = tile.k_begin * bits / 8;
  if (region.order == Order::kRowsFirst) {
    return runs(region, tile.row_begin * region.outer_stride_bytes + k_offset, k_bytes, rows);
  }
  const std::uint64_t unit = unit_bytes(source.encoding.element);
  return runs(
      region,
      k_offset / unit * region.outer_stride_bytes + tile.row_begin * region.inner_step_bytes,
      (rows - 1) * region.inner_step_bytes + unit, k_bytes / unit);
}

ScaleRange scale_range(const MatrixSource& source, const layout::PanelTile& tile) {
  const formats::Encoding& encoding = source.encoding;
  ScaleRange range{0, 1, 0, 1};
  if (encoding.block_rows != formats::kWhole) {
    const std::uint64_t last = source.row_origin + (tile.row_end - 1) * source.row_step;
    range.row_begin = (source.row_origin + tile.row_begin * source.row_step) / encoding.block_rows;
    range.row_end = last / encoding.block_rows + 1;
  }
  if (encoding.block_k != formats::kWhole) {
    range.column_begin = tile.k_begin / encoding.block_k;
    range.column_end = (tile.k_end - 1) / encoding.block_k + 1;
  }
  return range;
}

SlotData scales_of(const MatrixSource& source, const layout::PanelTile& tile) {
  const Region& region = source.scales;
  const ScaleRange range = scale_range(source, tile);
  const std::uint64_t width = formats::info(source.stored_scale_format).bits / 8;
  const std::uint64_t rows = range.row_end - range.row_begin;
  const std::uint64_t columns = range.column_end - range.column_begin;
  if (region.order == Order::kRowsFirst) {
    return runs(region, range.row_begin * region.outer_stride_bytes + range.column_begin * width,
                columns * width, rows);
  }
  return runs(
      region,
      range.column_begin * region.outer_stride_bytes + range.row_begin * region.inner_step_bytes,
      (rows - 1) * region.inner_step_bytes + width, columns);
}

}  // namespace lode::loader
