#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

void install_marlin(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx512
