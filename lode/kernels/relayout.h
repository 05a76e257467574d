#pragma once

#include <cstddef>
#include <cstdint>

#include "lode/kernels/panel.h"

namespace lode::kernels {

/// Codes as a file has them, and the panels that they fill. The first row begins a panel, the first
/// k a super-block; the last ones may be anywhere. Nothing of the source need be aligned.
///
/// Rows first: row r at r * outer_stride_bytes, its codes side by side.
/// K first:    unit u of k at u * outer_stride_bytes, row r of it at + r * inner_step_bytes; a unit
///             is one code, or two of E2M1 in one byte.
struct CodeTile {
  PanelShape shape{};
  const std::byte* source = nullptr;
  std::size_t outer_stride_bytes = 0;
  std::size_t inner_step_bytes = 0;
  std::size_t num_rows = 0;
  std::size_t k = 0;
  std::byte* panels = nullptr;  // the first super-block of the first panel
  std::size_t panel_stride_bytes = 0;

  LODE_KERNEL_INLINE constexpr std::size_t num_panels() const noexcept {
    return (num_rows + kPanelRows - 1) / kPanelRows;
  }
  LODE_KERNEL_INLINE constexpr std::size_t rows_of(std::size_t panel) const noexcept {
    const std::size_t left = num_rows - panel * kPanelRows;
    return left < kPanelRows ? left : kPanelRows;
  }
};

/// Block scales of one byte, one a row and group, and the panels that they stand in.
struct ScaleTile {
  PanelShape shape{};
  const std::byte* source = nullptr;
  std::size_t row_step_bytes = 0;
  std::size_t group_step_bytes = 1;
  std::size_t num_rows = 0;
  std::size_t k = 0;
  std::byte* panels = nullptr;  // as in CodeTile: the scales lie behind the code lines
  std::size_t panel_stride_bytes = 0;
};

/// What was among such scales. -0 is not negative.
struct ScaleBytesSeen {
  bool nan = false;
  bool negative = false;
};

/// One super-block's code as one number, for the laws below: E8M0 for MXFP4, else E4M3.
LODE_KERNEL_INLINE constexpr bool is_nan_scale(PanelKind kind, std::uint32_t code) noexcept {
  return kind == PanelKind::kMxfp4 ? code == 0xFFU : (code & 0x7FU) == 0x7FU;
}
LODE_KERNEL_INLINE constexpr bool is_negative_scale(PanelKind kind, std::uint32_t code) noexcept {
  return kind != PanelKind::kMxfp4 && code > 0x80U && code != 0xFFU;
}

}  // namespace lode::kernels
