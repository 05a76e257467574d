#pragma once

#include "lode/kernels/avx512/lines.h"
#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

/// Overwrites fast_dot of MXFP4, NVFP4 and I8.
void install_fast_dot(KernelTable& table, Prefetch prefetch) noexcept;

}  // namespace lode::kernels::avx512
