#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

void mix_rows(const MixedRows& rows) noexcept;

}  // namespace lode::kernels::scalar
