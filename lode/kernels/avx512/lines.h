#pragma once

#include <immintrin.h>

#include <cstddef>

#include "lode/kernels/kernel_table.h"

namespace lode::kernels::avx512 {

/// Whether a kernel asks for lines ahead of use. Kernels of several tokens always do: they come
/// to their lines too slowly for the hardware to run ahead (Zen 4: 1.7 times faster with it). With
/// one token Emerald Rapids gains 10-20 % from DRAM; Zen 4 follows the rising stream by itself, and
/// loses 25 %.
enum class Prefetch : bool { kNo, kYes };

/// A line for several uses. g++ would read it anew for each, and loads are what binds.
LODE_KERNEL_INLINE __m512i load_line(const std::byte* line) noexcept {
  __m512i codes = _mm512_loadu_si512(line);
  __asm__("" : "+v"(codes));
  return codes;
}

LODE_KERNEL_INLINE __m128i load_16_bytes(const std::byte* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

/// Asks for `bytes` that lie 4 KiB behind `from`. Past the end of memory that is no fault.
template <Prefetch kPrefetch>
LODE_KERNEL_INLINE void prefetch(const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kAheadBytes = 4096;
  if constexpr (kPrefetch == Prefetch::kYes) {
#pragma GCC unroll 8
    for (std::size_t at = 0; at < bytes; at += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(from) + at + kAheadBytes, _MM_HINT_T0);
    }
  }
}

/// E4M3 scales of 16 rows divided by 256 (NaN codes: +-480), subnormals included: seeeemmm is the
/// fp16 s0eeeemmm0000000. The sign is spread over the upper byte first.
LODE_KERNEL_INLINE __m512 e4m3_scales_over_256(const std::byte* scales) noexcept {
  const __m256i wide = _mm256_cvtepi8_epi16(load_16_bytes(scales));
  const __m256i keep = _mm256_set1_epi16(static_cast<short>(0xBF80));
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), keep));
}

}  // namespace lode::kernels::avx512
