#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lode/kernels/panel.h"
#include "lode/tensor/tensor.h"

namespace lode::layout {

//   kPanels:        | panel 0 | panel 1 | ... | panel (rows-1)/16 |          [ matrix scales ]
//   kGateUpPanels:  | gate 0  | up 0    | gate 1 | up 1 | ...     |          [ matrix scales ]
//
// A panel is drawn in kernels/panel.h. The line of matrix scales (64 bytes: f32 of the matrix, or
// of gate and of up, then zeros) is there only where the encoding has a scale above its blocks.
// Padding: rows of the last panel beyond the matrix, k beyond the last whole line, the rest of
// scale lines; all zero.
// Source: spec cpu_performance 5.1.

/// A code's place: its first byte, and the bit in it where a code of less than 8 bits begins.
struct CodePlace {
  std::uint64_t offset_bytes = 0;
  std::uint32_t shift_bits = 0;

  friend bool operator==(const CodePlace&, const CodePlace&) = default;
};

/// Where every number of one matrix [rows, k], or of a pair of them, lies: coordinate -> byte.
class PanelLayout {
 public:
  /// `num_matrices` is 1 (kPanels) or 2 (kGateUpPanels). Nothing where panels do not hold the
  /// encoding, or where 64 bits do not count the bytes.
  static std::optional<PanelLayout> make(const formats::Encoding& encoding, std::uint64_t rows,
                                         std::uint64_t k, std::uint32_t num_matrices = 1);

  const kernels::PanelShape& shape() const noexcept { return shape_; }
  const formats::Encoding& encoding() const noexcept { return encoding_; }
  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t k() const noexcept { return k_; }
  std::uint32_t num_matrices() const noexcept { return num_matrices_; }

  std::uint64_t panels_per_matrix() const noexcept {
    return (rows_ + kernels::kPanelRows - 1) / kernels::kPanelRows;
  }
  std::uint64_t panel_bytes() const noexcept { return panel_bytes_; }
  /// All of it: panels and the line of matrix scales.
  std::uint64_t total_bytes() const noexcept { return total_bytes_; }
  /// Of total_bytes, what holds a code, a block scale or a matrix scale.
  std::uint64_t used_bytes() const noexcept;

  std::uint64_t panel_offset(std::uint32_t matrix, std::uint64_t panel) const noexcept {
    return (panel * num_matrices_ + matrix) * panel_bytes_;
  }
  /// From a panel of a matrix to its next one.
  std::uint64_t panel_stride_bytes() const noexcept { return panel_bytes_ * num_matrices_; }
  /// Super-block `block` of a panel, from the panel's beginning; `num_super_blocks` gives its end.
  std::uint64_t super_block_offset(std::uint64_t block) const noexcept {
    return block * shape_.super_block_bytes();
  }
  std::uint64_t num_super_blocks() const noexcept {
    return (k_ + kernels::kSuperBlockK - 1) / kernels::kSuperBlockK;
  }
  /// Codes a row of super-block `block`: 128, or fewer in the last.
  std::uint64_t super_block_k(std::uint64_t block) const noexcept {
    const std::uint64_t rest = k_ - block * kernels::kSuperBlockK;
    return rest < kernels::kSuperBlockK ? rest : kernels::kSuperBlockK;
  }

  CodePlace code(std::uint32_t matrix, std::uint64_t row, std::uint64_t k) const noexcept;
  /// Scale of row `row` and group `group` = k / shape().group_k.
  std::uint64_t scale_offset(std::uint32_t matrix, std::uint64_t row,
                             std::uint64_t group) const noexcept;
  /// Only where has_matrix_scales().
  std::uint64_t matrix_scale_offset(std::uint32_t matrix) const noexcept {
    return panel_offset(0, panels_per_matrix()) + matrix * sizeof(float);
  }
  bool has_matrix_scales() const noexcept {
    return encoding_.tensor_scale != formats::TensorScale::kNone;
  }

  /// What a tensor in this layout says of itself: shape [rows, k] or [2, rows, k].
  tensor::Meta meta() const noexcept;

 private:
  PanelLayout() = default;

  formats::Encoding encoding_{};
  kernels::PanelShape shape_{};
  std::uint64_t rows_ = 0;
  std::uint64_t k_ = 0;
  std::uint32_t num_matrices_ = 1;
  std::uint64_t panel_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

/// A part of a matrix that is written at once: whole panels, whole super-blocks.
struct PanelTile {
  std::uint32_t matrix = 0;     // 0, or 1 for the second of a pair
  std::uint64_t row_begin = 0;  // multiple of 16
  std::uint64_t row_end = 0;    // multiple of 16, or the last row's end
  std::uint64_t k_begin = 0;    // multiple of 128
  std::uint64_t k_end = 0;      // multiple of 128, or k
};

/// Bytes of the panels that a tile fills: codes, scales and padding, no matrix scales.
std::uint64_t tile_bytes(const PanelLayout& layout, const PanelTile& tile) noexcept;

}  // namespace lode::layout
