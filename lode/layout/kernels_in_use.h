#pragma once

#include "lode/kernels/kernel_table.h"

namespace lode::layout {

/// The kernels that move bytes here. Every table makes the same bytes, so that one for a LODE_ISA
/// that names none is as good: whoever opens a model has refused that name before.
inline const kernels::KernelTable& kernels_in_use() {
  const auto active = kernels::active();
  return active ? **active : kernels::available().front();
}

}  // namespace lode::layout
