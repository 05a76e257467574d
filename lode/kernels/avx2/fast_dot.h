#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

/// Overwrites fast_dot of MXFP4, NVFP4 and I8.
void install_fast_dot(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
