#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

void install_relayout(KernelTable& table) noexcept;
void install_scales(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx512
