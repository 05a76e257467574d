#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// Row `row` of one super-block as floats: code * multiplier, rounded once.
/// Shapes: out [block.k].
void decode_super_block_row(const PanelShape& shape, const MatrixScale& scale,
                            const SuperBlock& block, std::size_t row, float* out) noexcept;

/// The law of KernelTable::exact_dot, for every kind.
void exact_dot(const PanelDot& call) noexcept;

/// The law of KernelTable::decode_row.
void decode_row(const PanelShape& shape, const MatrixScale& scale, const std::byte* panel,
                std::size_t row, std::size_t k, float* out) noexcept;

}  // namespace lode::kernels::scalar
