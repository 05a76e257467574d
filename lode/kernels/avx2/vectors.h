#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

/// Overwrites dot, add_scaled, their f16 forms, to_f16, rms_norm and pack_activation.
void install_vectors(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
