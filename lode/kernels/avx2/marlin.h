#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

void install_marlin(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
