#pragma once

#include <span>
#include <string_view>

#include "lode/base/result.h"
#include "lode/kernels/cpu.h"
#include "lode/kernels/kernel_table.h"

namespace lode::kernels {

/// The decisions behind available(), active() and force(), for any machine.

/// How many of scalar, avx2, avx512 such a machine can run.
std::size_t count_available(const CpuWords& cpu) noexcept;

/// The table of that name, or the last one for an empty name.
/// Errors: kUnsupported naming `asker` and listing the choices.
Result<const KernelTable*> choose(std::span<const KernelTable> tables, std::string_view isa,
                                  std::string_view asker);

}  // namespace lode::kernels
