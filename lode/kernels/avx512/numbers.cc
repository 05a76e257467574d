#include "lode/kernels/avx512/numbers.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/avx512/lines.h"
#include "lode/kernels/scalar/numbers.h"

// The laws are scalar/numbers.cc.

namespace lode::kernels::avx512 {
namespace {

using formats::Format;

constexpr std::size_t kLanes = 16;

LODE_KERNEL_INLINE __mmask16 first_lanes(std::size_t n) noexcept {
  return n >= kLanes ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << n) - 1u);
}

/// 16 numbers, or those of them that `lanes` names.
template <Format kFrom>
LODE_KERNEL_INLINE __m512 load(const std::byte* from, __mmask16 lanes) noexcept {
  if constexpr (kFrom == Format::kF32) {
    return _mm512_maskz_loadu_ps(lanes, from);
  } else if constexpr (kFrom == Format::kBf16) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  } else if constexpr (kFrom == Format::kF16) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, from));
  } else if constexpr (kFrom == Format::kE5m2) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(lanes, from));
    return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
  } else {
    const __m128i codes = _mm_maskz_loadu_epi8(lanes, from);
    const __m128i magnitude = _mm_set1_epi8(0x7F);
    const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(codes, magnitude), magnitude);
    // seeeemmm is the fp16 s0eeeemmm0000000 times 256.
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                            _mm256_set1_epi16(static_cast<short>(0xBF80)));
    const __m512 values = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0F));
    return _mm512_mask_mov_ps(values, nan, _mm512_set1_ps(__builtin_nanf("")));
  }
}

template <Format kFrom, std::size_t kBytes>
void widen_all(const std::byte* source, std::size_t n, float* out) noexcept {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm512_storeu_ps(out + i, load<kFrom>(source + i * kBytes, 0xFFFF));
  }
  const __mmask16 rest = first_lanes(n - i);
  _mm512_mask_storeu_ps(out + i, rest, load<kFrom>(source + i * kBytes, rest));
}

void widen(Format from, const std::byte* source, std::size_t step_bytes, std::size_t n,
           float* out) noexcept {
  if (step_bytes != formats::info(from).bits / 8) {
    return scalar::widen(from, source, step_bytes, n, out);
  }
  switch (from) {
    case Format::kF16:
      return widen_all<Format::kF16, 2>(source, n, out);
    case Format::kBf16:
      return widen_all<Format::kBf16, 2>(source, n, out);
    case Format::kE4m3:
      return widen_all<Format::kE4m3, 1>(source, n, out);
    case Format::kE5m2:
      return widen_all<Format::kE5m2, 1>(source, n, out);
    default:
      std::memcpy(out, source, n * sizeof(float));
  }
}

float quantise_i8(const float* x, std::size_t n, std::int8_t* codes) noexcept {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest = _mm512_setzero_si512();
  for (std::size_t i = 0; i < n; i += kLanes) {
    const __m512i bits = _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i);
    largest = _mm512_max_epi32(largest, _mm512_and_si512(bits, magnitude));
  }
  const int most = _mm512_reduce_max_epi32(largest);
  if (most >= 0x7F800000) return __builtin_nanf("");
  const float scale = __builtin_bit_cast(float, most) / 127.0F;
  if (n < kSuperBlockK || scale == 0.0F) std::memset(codes, 0, kSuperBlockK);
  if (scale == 0.0F) return scale;
  const __m512 divisor = _mm512_set1_ps(scale);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 steps = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, x + i), divisor);
    const __m512 within =
        _mm512_min_ps(_mm512_max_ps(steps, _mm512_set1_ps(-127.0F)), _mm512_set1_ps(127.0F));
    // To even, as MXCSR is left.
    _mm_mask_storeu_epi8(codes + i, lanes, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within)));
  }
  return scale;
}

}  // namespace

void install_numbers(KernelTable& table) noexcept {
  table.widen = widen;
  table.quantise_i8 = quantise_i8;
}

}  // namespace lode::kernels::avx512
