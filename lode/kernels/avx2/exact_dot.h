#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

/// Overwrites exact_dot of every kind, and fast_dot where that takes f32 activations.
void install_exact_dot(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
