#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

void install_mixed_rows(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
