#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

void install_marlin(KernelTable& table) noexcept;
void install_marlin_scales(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
