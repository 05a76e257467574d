#include "lode/layout/panels.h"

#include "lode/base/bytes.h"
#include "lode/layout/expert_record.h"

namespace lode::layout {
namespace {

using kernels::kLineBytes;
using kernels::kPanelRows;
using kernels::kSuperBlockK;

// A limit that no machine reaches, so that what is computed from the parts cannot overflow.
constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 40;

}  // namespace

std::optional<PanelLayout> PanelLayout::make(const formats::Encoding& encoding, std::uint64_t rows,
                                             std::uint64_t k, std::uint32_t num_matrices) {
  const auto shape = kernels::panel_shape(encoding);
  if (!shape || rows == 0 || k == 0 || rows > kMaxExtent || k > kMaxExtent) return std::nullopt;
  PanelLayout layout;
  layout.encoding_ = encoding;
  layout.shape_ = *shape;
  layout.rows_ = rows;
  layout.k_ = k;
  layout.num_matrices_ = num_matrices;
  layout.panel_bytes_ = shape->panel_bytes(k);
  const auto panels = checked_mul(layout.panels_per_matrix() * num_matrices, layout.panel_bytes_);
  if (!panels) return std::nullopt;
  const auto total = checked_add(*panels, layout.has_matrix_scales() ? kLineBytes : 0);
  if (!total) return std::nullopt;
  layout.total_bytes_ = *total;
  return layout;
}

std::uint64_t PanelLayout::used_bytes() const noexcept {
  const std::uint64_t row_bytes = (k_ * shape_.bits + 7) / 8;
  const std::uint64_t groups = (k_ + shape_.group_k - 1) / shape_.group_k;
  const std::uint64_t matrix_scale = has_matrix_scales() ? sizeof(float) : 0;
  return num_matrices_ * (rows_ * (row_bytes + groups * shape_.scale_bytes) + matrix_scale);
}

CodePlace PanelLayout::code(std::uint32_t matrix, std::uint64_t row,
                            std::uint64_t k) const noexcept {
  const std::uint64_t in_block = k % kSuperBlockK;
  const std::uint64_t line = in_block / shape_.k_per_line();
  const std::uint64_t bit = in_block % shape_.k_per_line() * shape_.bits;
  const std::uint64_t offset = panel_offset(matrix, row / kPanelRows) +
                               super_block_offset(k / kSuperBlockK) + line * kLineBytes +
                               row % kPanelRows * sizeof(std::uint32_t) + bit / 8;
  return {offset, static_cast<std::uint32_t>(bit % 8)};
}

std::uint64_t PanelLayout::scale_offset(std::uint32_t matrix, std::uint64_t row,
                                        std::uint64_t group) const noexcept {
  const std::uint64_t groups_per_block = kSuperBlockK / shape_.group_k;
  const std::uint64_t block = group / groups_per_block;
  const std::uint64_t number = group % groups_per_block * kPanelRows + row % kPanelRows;
  return panel_offset(matrix, row / kPanelRows) + super_block_offset(block) +
         shape_.code_lines(super_block_k(block)) * kLineBytes + number * shape_.scale_bytes;
}

tensor::Meta PanelLayout::meta() const noexcept {
  if (num_matrices_ == 1) return {encoding_, tensor::Layout::kPanels, {rows_, k_}};
  return {encoding_, tensor::Layout::kGateUpPanels, {num_matrices_, rows_, k_}};
}

std::uint64_t tile_bytes(const PanelLayout& layout, const PanelTile& tile) noexcept {
  const std::uint64_t panels = (tile.row_end - tile.row_begin + kPanelRows - 1) / kPanelRows;
  const std::uint64_t end = tile.k_end == layout.k()
                                ? layout.panel_bytes()
                                : layout.super_block_offset(tile.k_end / kSuperBlockK);
  return panels * (end - layout.super_block_offset(tile.k_begin / kSuperBlockK));
}

std::optional<std::uint64_t> panels_bytes(const formats::Encoding& encoding, std::uint64_t rows,
                                          std::uint64_t k) {
  const auto layout = PanelLayout::make(encoding, rows, k);
  if (!layout) return std::nullopt;
  return layout->total_bytes();
}

}  // namespace lode::layout
