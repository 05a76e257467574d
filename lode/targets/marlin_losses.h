#pragma once

#include "lode/targets/losses.h"
#include "lode/targets/marlin_matrix.h"

namespace lode::targets {

/// What becomes of E4M3 block scales that take up `ratio` and then the tensor's factor: S0E5M3 has
/// no subnormals and no sign.
Fates fates_of_marlin_nvfp4(float factor, float ratio, const MarlinKernel& kernel) noexcept;

/// What becomes of E8M0 scales: F16 holds few of them, and with 8-bit activations the largest do
/// not fit.
Fates fates_of_marlin_mx(const MarlinKernel& kernel) noexcept;

}  // namespace lode::targets
