#include "lode/kernels/avx2/numbers.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/scalar/numbers.h"

// The laws are scalar/numbers.cc.

namespace lode::kernels::avx2 {
namespace {

using formats::Format;

constexpr std::size_t kLanes = 8;

LODE_KERNEL_INLINE __m128i load_16(const std::byte* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
LODE_KERNEL_INLINE __m128i load_8(const std::byte* from) noexcept {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}

/// Eight numbers.
template <Format kFrom>
LODE_KERNEL_INLINE __m256 load(const std::byte* from) noexcept {
  if constexpr (kFrom == Format::kBf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from)), 16));
  } else if constexpr (kFrom == Format::kF16) {
    return _mm256_cvtph_ps(load_16(from));
  } else if constexpr (kFrom == Format::kE5m2) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load_8(from)), 8));
  } else {
    // seeeemmm is the fp16 s0eeeemmm0000000 times 256.
    const __m128i wide = _mm_cvtepi8_epi16(load_8(from));
    const __m128i halves =
        _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(static_cast<short>(0xBF80)));
    const __m256 values = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0F));
    const __m256i magnitudes =
        _mm256_and_si256(_mm256_cvtepi16_epi32(wide), _mm256_set1_epi32(0x7F));
    const __m256i nan = _mm256_cmpeq_epi32(magnitudes, _mm256_set1_epi32(0x7F));
    return _mm256_blendv_ps(values, _mm256_set1_ps(__builtin_nanf("")), _mm256_castsi256_ps(nan));
  }
}

template <Format kFrom, std::size_t kBytes>
void widen_all(const std::byte* source, std::size_t n, float* out) noexcept {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) _mm256_storeu_ps(out + i, load<kFrom>(source + i * kBytes));
  scalar::widen(kFrom, source + i * kBytes, kBytes, n - i, out + i);
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

/// The bits of the largest magnitude, or those of some number that is not finite.
LODE_KERNEL_INLINE int largest_bits(const float* x, __m256 factor) noexcept {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i most = _mm256_setzero_si256();
  for (std::size_t i = 0; i < kSuperBlockK; i += kLanes) {
    const __m256i bits = _mm256_castps_si256(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
    most = _mm256_max_epi32(most, _mm256_and_si256(bits, magnitude));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}

LODE_KERNEL_INLINE __m256i steps_of(const float* x, __m256 factor, __m256 scale) noexcept {
  const __m256 steps = _mm256_div_ps(_mm256_mul_ps(_mm256_loadu_ps(x), factor), scale);
  const __m256 within =
      _mm256_min_ps(_mm256_max_ps(steps, _mm256_set1_ps(-127.0F)), _mm256_set1_ps(127.0F));
  return _mm256_cvtps_epi32(within);  // to even, as MXCSR is left
}

float quantise_i8(const float* x, float factor, std::size_t n, std::int8_t* codes) noexcept {
  float padded[kSuperBlockK];
  if (n < kSuperBlockK) {
    std::memcpy(padded, x, n * sizeof(float));
    std::memset(padded + n, 0, (kSuperBlockK - n) * sizeof(float));
    x = padded;
  }
  const __m256 factors = _mm256_set1_ps(factor);
  const int most = largest_bits(x, factors);
  if (most >= 0x7F800000) return __builtin_nanf("");
  const float scale = __builtin_bit_cast(float, most) / 127.0F;
  if (scale == 0.0F) {
    std::memset(codes, 0, kSuperBlockK);
    return scale;
  }
  const __m256 divisor = _mm256_set1_ps(scale);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing goes half by half
  for (std::size_t i = 0; i < kSuperBlockK; i += 4 * kLanes) {
    const __m256i low = _mm256_packs_epi32(steps_of(x + i, factors, divisor),
                                           steps_of(x + i + 8, factors, divisor));
    const __m256i high = _mm256_packs_epi32(steps_of(x + i + 16, factors, divisor),
                                            steps_of(x + i + 24, factors, divisor));
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), bytes);
  }
  return scale;
}

}  // namespace

void install_numbers(KernelTable& table) noexcept {
  table.widen = widen;
  table.quantise_i8 = quantise_i8;
}

}  // namespace lode::kernels::avx2
