#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

/// Overwrites what AVX-512 (F, BW, DQ, VL, VNNI, VBMI) does better. Only for machines that have
/// all of them. `intel` picks what was measured to differ between the makers (lines.h).
void install(KernelTable& table, bool intel) noexcept;

}  // namespace lode::kernels::avx512
