#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx2 {

/// Overwrites encode_piece.
void install_online(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx2
