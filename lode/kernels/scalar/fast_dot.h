#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// The law of KernelTable::fast_dot for MXFP4, NVFP4 and I8.
void fast_dot(const PanelDot& call) noexcept;

/// The law of KernelTable::fast_dot for E4M3, whose activations are f32.
void e4m3_fast_dot(const PanelDot& call) noexcept;

}  // namespace lode::kernels::scalar
