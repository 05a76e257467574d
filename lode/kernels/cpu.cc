#include "lode/kernels/cpu.h"

#include <cpuid.h>

namespace lode::kernels {
namespace {

constexpr std::uint32_t bit(unsigned n) noexcept { return std::uint32_t{1} << n; }

// Source: Intel SDM volume 2, CPUID.
constexpr std::uint32_t kFma = bit(12), kOsXsave = bit(27), kAvx = bit(28), kF16c = bit(29);
constexpr std::uint32_t kAvx2 = bit(5), kF = bit(16), kDq = bit(17), kBw = bit(30), kVl = bit(31);
constexpr std::uint32_t kVbmi = bit(1), kVnni = bit(11);
constexpr std::uint64_t kYmmState = 0x06, kZmmState = 0xE6;

constexpr bool has_all(std::uint64_t word, std::uint64_t bits) noexcept {
  return (word & bits) == bits;
}

}  // namespace

CpuWords read_cpu() noexcept {
  CpuWords cpu;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return cpu;
  cpu.intel = b == 0x756E6547u && d == 0x49656E69u && c == 0x6C65746Eu;  // "Genu" "ineI" "ntel"
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return cpu;
  cpu.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    cpu.leaf7_ebx = b;
    cpu.leaf7_ecx = c;
  }
  if (has_all(cpu.leaf1_ecx, kOsXsave)) {
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // _xgetbv wants -mxsave
    cpu.xcr0 = (std::uint64_t{high} << 32) | low;
  }
  return cpu;
}

bool has_avx2(const CpuWords& cpu) noexcept {
  return has_all(cpu.leaf1_ecx, kFma | kOsXsave | kAvx | kF16c) && has_all(cpu.leaf7_ebx, kAvx2) &&
         has_all(cpu.xcr0, kYmmState);
}

bool has_avx512(const CpuWords& cpu) noexcept {
  return has_avx2(cpu) && has_all(cpu.leaf7_ebx, kF | kDq | kBw | kVl) &&
         has_all(cpu.leaf7_ecx, kVbmi | kVnni) && has_all(cpu.xcr0, kZmmState);
}

}  // namespace lode::kernels
