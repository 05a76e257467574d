#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// Fills every entry of the table with the law.
void install(KernelTable& table) noexcept;

}  // namespace lode::kernels::scalar
