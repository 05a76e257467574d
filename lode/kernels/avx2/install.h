#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

/// Overwrites what AVX2, FMA and F16C do better. Only for machines that have them.
void install(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
