#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lode/layout/panels.h"

namespace lode::layout {

/// Source bytes of a tile, beginning with the tile's first row and first k.
///
/// Rows first: row r at r * outer_stride_bytes, its codes side by side.
/// K first:    unit u of k at u * outer_stride_bytes, row r of it at + r * inner_step_bytes; a unit
///             is one code, or two of E2M1 in one byte.
struct SourceCodes {
  std::span<const std::byte> bytes;
  bool k_first = false;
  std::uint64_t outer_stride_bytes = 0;
  std::uint64_t inner_step_bytes = 0;
};

/// Block scales of a tile's matrix, beginning with block row `first_row` and block column
/// `first_column` of the stored ones.
struct SourceScales {
  std::span<const std::byte> bytes;
  bool k_first = false;
  std::uint64_t outer_stride_bytes = 0;
  std::uint64_t inner_step_bytes = 0;
  formats::Format format{};  // as stored
  // Row r of the matrix is row row_origin + r * row_step of the stored one.
  std::uint64_t row_origin = 0;
  std::uint64_t row_step = 1;
  std::uint64_t first_row = 0;
  std::uint64_t first_column = 0;
};

/// Puts the codes of a tile to their places. Writes every code line of the tile, zeros where the
/// matrix has nothing; touches no scale.
///
/// Shapes:  source [row_end - row_begin, k_end - k_begin]; panels [total_bytes] of the layout.
/// Memory:  none.
/// Source:  kernels/panel.h.
void scatter_codes(const PanelLayout& layout, const PanelTile& tile, const SourceCodes& source,
                   std::span<std::byte> panels) noexcept;

/// What block scales are like. No known producer writes negative ones, but they have a meaning, so
/// they are taken; whoever loads them may say so.
struct ScalesSeen {
  bool finite = true;
  bool negative = false;  // -0 is not
  explicit operator bool() const noexcept { return finite; }
};

/// Puts the block scales of a tile to their places, written out for every row and group of the
/// panel: scales of one byte are copied, others become f32. If one of them is NaN or infinite,
/// which no producer means, `find_bad_scale` says which.
///
/// Shapes:  panels [total_bytes] of the layout.
/// Memory:  none.
[[nodiscard]] ScalesSeen scatter_scales(const PanelLayout& layout, const PanelTile& tile,
                                        const SourceScales& source,
                                        std::span<std::byte> panels) noexcept;

/// Which stored scale a row and a k of the matrix have.
struct BlockPlace {
  std::uint64_t row = 0;
  std::uint64_t column = 0;
};
BlockPlace block_of(const formats::Encoding& encoding, const SourceScales& source,
                    std::uint64_t row, std::uint64_t k) noexcept;

/// Byte of the source where a block's scale begins.
std::uint64_t scale_position(const SourceScales& source, const BlockPlace& block) noexcept;

/// A scale that no producer means: NaN or infinite.
struct BadScale {
  std::uint64_t row = 0;    // of the matrix
  std::uint64_t group = 0;  // k / group_k of the panel
  float value = 0.0F;
};

/// The first bad scale among those that a tile needs.
/// Shapes:  as scatter_scales.
std::optional<BadScale> find_bad_scale(const PanelLayout& layout, const PanelTile& tile,
                                       const SourceScales& source) noexcept;

/// What scatter_scales would see, with nothing written.
/// Shapes:  as scatter_scales.
ScalesSeen look_at_scales(const PanelLayout& layout, const PanelTile& tile,
                          const SourceScales& source) noexcept;

}  // namespace lode::layout
