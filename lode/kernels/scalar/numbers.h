#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// The laws of the entries of KernelTable that have these names.
void widen(formats::Format from, const std::byte* source, std::size_t step_bytes, std::size_t n,
           float* out) noexcept;
float quantise_i8(const float* x, float factor, std::size_t n, std::int8_t* codes) noexcept;

}  // namespace lode::kernels::scalar
