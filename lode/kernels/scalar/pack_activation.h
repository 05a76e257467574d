#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

/// The law of KernelTable::pack_activation.
///
/// For each block of 32: s = amax / 127 and code = rint(x / s), to even. Where s would be subnormal
/// or zero, it is 0 and so are the codes; where a number is infinite or NaN, s is NaN and the codes
/// are 0, so that every output of the row becomes NaN.
void pack_activation(ActivationForm form, const float* x, std::size_t k, std::byte* out) noexcept;

}  // namespace lode::kernels::scalar
