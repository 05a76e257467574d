#pragma once

#include <cstdint>
#include <span>

#include "lode/layout/panels.h"

namespace lode::layout {

/// The inverse of scatter: for tests, tools and export; not fast.
/// Source: panels.h.

/// Codes of one matrix as a file would hold them, row after row.
///
/// Shapes:  panels [total_bytes]; out [rows * ceil(k * bits / 8)].
void unpack_codes(const PanelLayout& layout, std::uint32_t matrix,
                  std::span<const std::byte> panels, std::span<std::byte> out);

/// Scales of one matrix as the panels hold them: [rows, groups] of scale_bytes each.
///
/// Shapes:  panels [total_bytes]; out [rows * ceil(k / group_k) * scale_bytes].
void unpack_scales(const PanelLayout& layout, std::uint32_t matrix,
                   std::span<const std::byte> panels, std::span<std::byte> out);

/// The scale of the whole matrix; 1 where the encoding has none.
float matrix_scale(const PanelLayout& layout, std::uint32_t matrix,
                   std::span<const std::byte> panels) noexcept;

/// Row `row` as f32 by the law of formats/dequantise.h.
///
/// Shapes:  panels [total_bytes]; out [k].
void decode_panel_row(const PanelLayout& layout, std::uint32_t matrix,
                      std::span<const std::byte> panels, std::uint64_t row, std::span<float> out);

}  // namespace lode::layout
