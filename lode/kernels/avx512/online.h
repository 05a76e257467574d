#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

/// Overwrites encode_piece.
void install_online(KernelTable& table) noexcept;

}  // namespace lode::kernels::avx512
