#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// The laws of the entries of KernelTable that have these names.
void rows_to_lines(const CodeTile& tile) noexcept;
void units_to_lines(const CodeTile& tile) noexcept;
ScaleBytesSeen scales_to_lines(const ScaleTile& tile) noexcept;

}  // namespace lode::kernels::scalar
