#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// The law of the entry of KernelTable that has this name.
void rows_to_marlin(const MarlinColumn& column) noexcept;

}  // namespace lode::kernels::scalar
