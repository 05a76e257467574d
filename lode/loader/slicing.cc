#include "lode/loader/slicing.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "lode/base/check.h"
#include "lode/loader/extents.h"

namespace lode::loader {
namespace {

using kernels::kLineBytes;
using kernels::kPanelRows;
using kernels::kSuperBlockK;

// What a tile of a transposed matrix touches before any part of it is finished must stay far below
// the 64 MiB of the contract: such matrices are cut along their rows as well.
constexpr std::uint64_t kMostTouchedBytes = 16 * kMiB;

// What is cut evenly leaves room in a slot for the rest of its first and last block.
std::uint64_t even_bytes(std::uint64_t slot_bytes) { return slot_bytes - 2 * io::kBlockBytes; }

class PanelSlicer {
 public:
  PanelSlicer(const Item& item, std::uint64_t slot_bytes, const GroupSink& sink)
      : item_(item),
        slot_bytes_(slot_bytes),
        sink_(sink),
        panels_(*layout::PanelLayout::make(item.meta.encoding, item.first->rows, item.first->k,
                                           item.second == nullptr ? 1 : 2)) {}

  void run() {
    if (item_.first->codes.order == Order::kRowsFirst) {
      rows_first();
    } else {
      k_first();
    }
    if (panels_.has_matrix_scales()) matrix_scales();
  }

 private:
  using Tile = layout::PanelTile;

  void rows_first() {
    const Tile one{0, 0, row_end(kPanelRows), 0, panels_.k()};
    if (!fits(one)) return tiles(kPanelRows, most_k(kPanelRows));
    tiles(most_rows(one), panels_.k());
  }

  // Largest number of rows whose whole k fits, from what one panel needs.
  std::uint64_t most_rows(const Tile& one) const {
    const std::uint64_t each = slot_bytes_of(group(one));
    std::uint64_t panels = std::max<std::uint64_t>(1, slot_bytes_ / each);
    panels = std::min(panels, panels_.panels_per_matrix());
    while (panels > 1 && !fits({0, 0, row_end(panels * kPanelRows), 0, panels_.k()})) --panels;
    return panels * kPanelRows;
  }

  // Largest k that fits for `rows` rows; 0 if not even one super-block does.
  std::uint64_t most_k(std::uint64_t rows) const {
    const Tile one{0, 0, row_end(rows), 0, k_end(kSuperBlockK)};
    if (!fits(one)) return 0;
    std::uint64_t blocks = std::max<std::uint64_t>(1, slot_bytes_ / slot_bytes_of(group(one)));
    blocks = std::min(blocks, panels_.num_super_blocks());
    while (blocks > 1 && !fits({0, 0, row_end(rows), 0, k_end(blocks * kSuperBlockK)})) --blocks;
    return blocks * kSuperBlockK;
  }

  void k_first() {
    std::uint64_t rows = align_up<std::uint64_t>(panels_.rows(), kPanelRows);
    const std::uint64_t row_of_panels = panels_.panel_bytes() * panels_.num_matrices();
    if (panels_.total_bytes() > kMostTouchedBytes) {
      rows = std::max<std::uint64_t>(1, kMostTouchedBytes / row_of_panels) * kPanelRows;
    }
    std::uint64_t k = most_k(rows);
    while (k == 0 && rows > kPanelRows) {
      rows = align_up<std::uint64_t>(rows / 2, kPanelRows);
      k = most_k(rows);
    }
    tiles(rows, k);
  }

  void tiles(std::uint64_t rows, std::uint64_t k) const {
    LODE_CHECK(k > 0, "a super-block of a panel is larger than a slot");
    for (std::uint64_t row = 0; row < panels_.rows(); row += rows) {
      for (std::uint64_t at = 0; at < panels_.k(); at += k) {
        sink_(group({0, row, row_end(row + rows), at, k_end(at + k)}));
      }
    }
  }

  Group group(const Tile& tile) const {
    Group operations;
    append(operations, *item_.first, tile);
    if (item_.second != nullptr) {
      Tile other = tile;
      other.matrix = 1;
      append(operations, *item_.second, other);
      const std::size_t half = operations.size() / 2;
      for (std::size_t i = 0; i < half; ++i) {
        share_runs(operations[i].codes, operations[half + i].codes);
        share_runs(operations[i].scales, operations[half + i].scales);
      }
    }
    return operations;
  }

  void append(Group& operations, const MatrixSource& source, const Tile& tile) const {
    Operation operation = blank(source);
    operation.tile = tile;
    operation.codes = codes_of(source, tile);
    operation.finished_bytes = layout::tile_bytes(panels_, tile);
    const bool scaled = source.encoding.has_scale;
    if (panels_.encoding() != source.encoding) {
      operation.kind = OperationKind::kRequantise;
      if (scaled) operation.scales = scales_of(source, tile);
      operations.push_back(operation);
      return;
    }
    operations.push_back(operation);
    if (!scaled) return;
    operation.kind = OperationKind::kScales;
    operation.codes = {};
    operation.scales = scales_of(source, tile);
    operation.finished_bytes = 0;
    operations.push_back(operation);
  }

  void matrix_scales() const {
    Group operations;
    for (std::uint32_t matrix = 0; matrix < panels_.num_matrices(); ++matrix) {
      const MatrixSource& source = matrix == 0 ? *item_.first : *item_.second;
      Operation operation = blank(source);
      operation.kind = OperationKind::kMatrixScale;
      operation.tile.matrix = matrix;
      operation.codes.extent = {source.matrix_scale_shard, source.matrix_scale_offset_bytes,
                                sizeof(float)};
      operation.finished_bytes = matrix == 0 ? kLineBytes : 0;
      operations.push_back(operation);
    }
    sink_(std::move(operations));
  }

  Operation blank(const MatrixSource& source) const {
    Operation operation;
    operation.target = item_.target;
    operation.matrix = &source;
    operation.panels = panels_;
    operation.meta = item_.meta;
    return operation;
  }

  bool fits(const Tile& tile) const { return slot_bytes_of(group(tile)) <= slot_bytes_; }
  std::uint64_t row_end(std::uint64_t row) const { return std::min(row, panels_.rows()); }
  std::uint64_t k_end(std::uint64_t k) const { return std::min(k, panels_.k()); }

  const Item& item_;
  std::uint64_t slot_bytes_;
  const GroupSink& sink_;
  layout::PanelLayout panels_;
};

void slice_rows(const Item& item, std::uint64_t slot_bytes, const GroupSink& sink) {
  const MatrixSource& source = *item.first;
  const std::uint64_t stride = source.codes.outer_stride_bytes;
  const std::uint64_t unit = std::max(stride, source.k * sizeof(float));
  const std::uint64_t rows = std::max<std::uint64_t>(1, even_bytes(slot_bytes) / unit);
  const std::uint64_t made =
      item.meta.shape[1] * formats::info(item.meta.encoding.element).bits / 8;
  for (std::uint64_t row = 0; row < source.rows; row += rows) {
    Operation operation;
    operation.kind = OperationKind::kRowMajor;
    operation.target = item.target;
    operation.matrix = &source;
    operation.meta = item.meta;
    operation.tile = {0, row, std::min(row + rows, source.rows), 0, source.k};
    operation.codes = codes_of(source, operation.tile);
    operation.finished_bytes = (operation.tile.row_end - row) * made;
    sink({operation});
  }
}

void slice_vector(const Item& item, std::uint64_t slot_bytes, const GroupSink& sink) {
  const VectorSource& source = *item.vector;
  const std::uint64_t width = formats::info(source.format).bits / 8;
  const std::uint64_t step = std::max(source.step_bytes, width);
  const std::uint64_t most = std::max<std::uint64_t>(1, even_bytes(slot_bytes) / step);
  for (std::uint64_t begin = 0; begin < source.count; begin += most) {
    Operation operation;
    operation.kind = OperationKind::kVector;
    operation.target = item.target;
    operation.vector = &source;
    operation.meta = item.meta;
    operation.tile.row_begin = begin;
    operation.tile.row_end = std::min(begin + most, source.count);
    const std::uint64_t count = operation.tile.row_end - begin;
    operation.codes.extent = {source.shard, source.offset_bytes + begin * source.step_bytes,
                              (count - 1) * source.step_bytes + width};
    operation.finished_bytes = count * sizeof(float);
    sink({operation});
  }
}

}  // namespace

std::uint64_t slot_bytes_of(const Group& group) noexcept {
  std::vector<Extent> extents;
  for (const Operation& operation : group) {
    for (const SlotData* data : {&operation.codes, &operation.scales}) {
      if (data->extent.bytes != 0) extents.push_back(data->extent);
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.shard, a.offset_bytes) < std::tie(b.shard, b.offset_bytes);
  });
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < extents.size();) {
    const Extent first = extents[i++];
    std::uint64_t end = first.offset_bytes + first.bytes;
    for (; i < extents.size() && first.shard == extents[i].shard; ++i) {
      const Extent& next = extents[i];
      const bool joins = first.count == 1 && next.count == 1 && next.offset_bytes <= end;
      if (!joins && next != first) break;
      end = std::max(end, next.offset_bytes + next.bytes);
    }
    Extent joined = first;
    joined.bytes = end - first.offset_bytes;
    bytes += slot_room(joined);
  }
  return bytes;
}

void slice(const Item& item, std::uint64_t slot_bytes, const GroupSink& sink) {
  if (item.vector != nullptr) return slice_vector(item, slot_bytes, sink);
  if (item.meta.layout == tensor::Layout::kRowMajor) return slice_rows(item, slot_bytes, sink);
  PanelSlicer(item, slot_bytes, sink).run();
}

}  // namespace lode::loader
