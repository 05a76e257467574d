#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// The laws of the entries of KernelTable that have these names.
void rows_to_marlin(const MarlinColumn& column) noexcept;
void scales_to_columns(const ScaleColumns& scales) noexcept;

}  // namespace lode::kernels::scalar
