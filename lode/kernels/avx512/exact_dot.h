#pragma once

#include "lode/kernels/avx512/lines.h"
#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

/// Overwrites exact_dot of every kind, and fast_dot where that takes f32 activations.
void install_exact_dot(KernelTable& table, Prefetch prefetch) noexcept;

}  // namespace lode::kernels::avx512
