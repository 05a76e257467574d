#include "lode/loader/extents.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/io/read_engine.h"

namespace lode::loader {
namespace {

// `count` runs of `bytes`, a stride apart, of which `own_bytes` belong to the matrix.
struct Runs {
  std::uint64_t offset = 0;  // of the first, from the region's
  std::uint64_t bytes = 0;
  std::uint64_t own_bytes = 0;
  std::uint64_t count = 1;
};

// Read as one where little lies between the runs that nobody wants: nothing of the same matrix
// beyond a quarter, and at most as much again, which then is the other matrix of a pair.
SlotData cover(const Region& region, const Runs& runs) {
  SlotData data;
  data.extent.shard = region.shard;
  data.extent.offset_bytes = region.offset_bytes + runs.offset;
  const std::uint64_t stride = region.outer_stride_bytes;
  const bool most_of_own = runs.bytes >= runs.own_bytes / 4 * 3;
  if (runs.count == 1 || (most_of_own && runs.own_bytes >= stride / 2)) {
    data.extent.bytes = (runs.count - 1) * stride + runs.bytes;
    data.outer_stride_bytes = stride;
    return data;
  }
  data.extent.bytes = runs.bytes;
  data.extent.count = runs.count;
  data.extent.stride_bytes = stride;
  data.outer_stride_bytes = runs.bytes;
  return data;
}

}  // namespace

std::uint64_t slot_room(const Extent& extent) noexcept {
  if (extent.count > 1) return align_up<std::uint64_t>(extent.total_bytes(), kernels::kLineBytes);
  if (extent.bytes == 0) return 0;
  // At worst the first byte is the last of a block.
  return (ceil_div<std::uint64_t>(extent.bytes - 1, io::kBlockBytes) + 1) * io::kBlockBytes;
}

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
    return cover(region, {tile.row_begin * region.outer_stride_bytes + k_offset, k_bytes,
                          (source.k * bits + 7) / 8, rows});
  }
  const std::uint64_t unit = unit_bytes(source.encoding.element);
  const std::uint64_t step = region.inner_step_bytes;
  return cover(region, {k_offset / unit * region.outer_stride_bytes + tile.row_begin * step,
                        (rows - 1) * step + unit, (source.rows - 1) * step + unit, k_bytes / unit});
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
  const ScaleRange own = scale_range(source, {0, 0, source.rows, 0, source.k});
  const std::uint64_t width = formats::info(source.stored_scale_format).bits / 8;
  const std::uint64_t rows = range.row_end - range.row_begin;
  const std::uint64_t columns = range.column_end - range.column_begin;
  const std::uint64_t stride = region.outer_stride_bytes;
  if (region.order == Order::kRowsFirst) {
    return cover(region, {range.row_begin * stride + range.column_begin * width, columns * width,
                          (own.column_end - own.column_begin) * width, rows});
  }
  const std::uint64_t step = region.inner_step_bytes;
  return cover(region,
               {range.column_begin * stride + range.row_begin * step, (rows - 1) * step + width,
                (own.row_end - own.row_begin - 1) * step + width, columns});
}

void share_runs(SlotData& a, SlotData& b) noexcept {
  const Extent& x = a.extent;
  const Extent& y = b.extent;
  if (x.count == 1 || x.shard != y.shard || x.count != y.count ||
      x.stride_bytes != y.stride_bytes) {
    return;
  }
  const std::uint64_t begin = std::min(x.offset_bytes, y.offset_bytes);
  const std::uint64_t end = std::max(x.offset_bytes + x.bytes, y.offset_bytes + y.bytes);
  if (end - begin >= x.bytes + y.bytes || end - begin > x.stride_bytes) return;
  a.begin_bytes = x.offset_bytes - begin;
  b.begin_bytes = y.offset_bytes - begin;
  const Extent shared{x.shard, begin, end - begin, x.count, x.stride_bytes};
  for (SlotData* data : {&a, &b}) {
    data->extent = shared;
    data->outer_stride_bytes = shared.bytes;
  }
}

}  // namespace lode::loader
