#pragma once

#include <cstdint>

namespace lode::kernels {

/// What CPUID and XGETBV said, as far as kernels care. Zeros for a leaf that does not exist.
struct CpuWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint64_t xcr0 = 0;  // which register states the system saves
  bool intel = false;      // made by Intel
};

/// Asks this machine.
CpuWords read_cpu() noexcept;

/// AVX2, FMA, F16C, and a system that saves ymm registers.
bool has_avx2(const CpuWords& cpu) noexcept;

/// has_avx2 and AVX-512 F, BW, DQ, VL, VNNI, VBMI, and a system that saves zmm and mask registers.
bool has_avx512(const CpuWords& cpu) noexcept;

}  // namespace lode::kernels
