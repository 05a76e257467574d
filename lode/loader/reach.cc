#include "lode/loader/reach.h"

namespace lode::loader {
namespace {

Reach panels_reach(const Operation& operation) {
  const layout::PanelLayout& panels = *operation.panels;
  const layout::PanelTile& tile = operation.tile;
  const std::uint64_t begin = tile.row_begin / kernels::kPanelRows;
  const std::uint64_t end = ceil_div<std::uint64_t>(tile.row_end, kernels::kPanelRows);
  return {.begin_bytes = panels.panel_offset(0, begin),
          .end_bytes = panels.panel_offset(0, end),
          .completes = tile.k_end == panels.k()};
}

std::uint64_t unit_bytes_of(const Operation& operation) {
  if (operation.kind == OperationKind::kVector) return sizeof(float);
  const std::uint64_t bits = formats::info(operation.meta.encoding.element).bits;
  return operation.meta.shape[1] * bits / 8;
}

Reach reach_in_tensor(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kMatrixScale:
      return {.begin_bytes = operation.panels->matrix_scale_offset(0),
              .end_bytes = operation.target.bytes};
    case OperationKind::kVector:
    case OperationKind::kRowMajor:
      return {.begin_bytes = operation.tile.row_begin * unit_bytes_of(operation),
              .end_bytes = operation.tile.row_end * unit_bytes_of(operation)};
    default:
      return panels_reach(operation);
  }
}

}  // namespace

Reach reach_of(const Group& group) {
  const Operation& first = group.front();
  Reach reach = reach_in_tensor(first);
  reach.slab = first.target.slab;
  reach.begin_bytes += first.target.offset_bytes;
  reach.end_bytes += first.target.offset_bytes;
  return reach;
}

}  // namespace lode::loader
