#pragma once

#include "lode/loader/operation.h"

namespace lode::loader {

/// Source bytes of the codes of a tile, and how they will lie in a slot.
SlotData codes_of(const MatrixSource& source, const layout::PanelTile& tile);

/// Which stored scales a tile needs.
struct ScaleRange {
  std::uint64_t row_begin = 0;  // rows and columns of blocks
  std::uint64_t row_end = 0;
  std::uint64_t column_begin = 0;
  std::uint64_t column_end = 0;
};
ScaleRange scale_range(const MatrixSource& source, const layout::PanelTile& tile);

/// The same for its block scales, which the encoding must have.
SlotData scales_of(const MatrixSource& source, const layout::PanelTile& tile);

/// Makes one extent of two whose runs overlap, as those of interleaved gate and up do, so that the
/// bytes are read once. Extents of one run are joined when a slot is filled.
void share_runs(SlotData& a, SlotData& b) noexcept;

/// Bytes of a slot that an extent may take, wherever in its file it begins. Of one run whole blocks
/// are read, so that they can go past the page cache.
std::uint64_t slot_room(const Extent& extent) noexcept;

/// Bytes of a unit of k of one row: a code, or two of E2M1.
std::uint64_t unit_bytes(formats::Format element) noexcept;

}  // namespace lode::loader
