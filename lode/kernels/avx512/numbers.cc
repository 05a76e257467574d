#include "lode/kernels/avx512/numbers.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/avx512/decode.h"
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

/// 64 codes at a time: look-ups give the upper two bytes of the floats, and the lower two are
/// zeros. The dwords of codes are dealt out first, so that unpacking inside the 128-bit lanes
/// leaves the floats in order.
void widen_e4m3(const std::byte* source, std::size_t n, float* out) noexcept {
  constexpr int kAOrBAndC = 0xF8;  // of _mm512_ternarylogic: a | (b & c)
  const E4m3Decoder tables;
  const __m512i deal = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i zero = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + kLineBytes <= n; i += kLineBytes) {
    const __m512i codes = _mm512_permutexvar_epi32(deal, _mm512_loadu_si512(source + i));
    const __m512i low = _mm512_permutex2var_epi8(tables.low0, codes, tables.low1);
    const __m512i high = _mm512_ternarylogic_epi32(
        _mm512_permutex2var_epi8(tables.high0, codes, tables.high1), codes, sign, kAOrBAndC);
    const __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
    _mm512_storeu_si512(out + i, _mm512_unpacklo_epi16(zero, first));
    _mm512_storeu_si512(out + i + kLanes, _mm512_unpackhi_epi16(zero, first));
    _mm512_storeu_si512(out + i + 2 * kLanes, _mm512_unpacklo_epi16(zero, second));
    _mm512_storeu_si512(out + i + 3 * kLanes, _mm512_unpackhi_epi16(zero, second));
  }
  widen_all<Format::kE4m3, 1>(source + i, n - i, out + i);
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
      return widen_e4m3(source, n, out);
    case Format::kE5m2:
      return widen_all<Format::kE5m2, 1>(source, n, out);
    default:
      std::memcpy(out, source, n * sizeof(float));
  }
}

/// 128 floats, those that there are not being zero.
struct Row {
  __m512 of[kSuperBlockK / kLanes];
};

LODE_KERNEL_INLINE int largest_bits(const Row& row) noexcept {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (const __m512& numbers : row.of) {
    most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(numbers), magnitude));
  }
  return _mm512_reduce_max_epi32(most);
}

LODE_KERNEL_INLINE float quantise_row(const Row& row, std::int8_t* codes) noexcept {
  const int most = largest_bits(row);
  if (most >= 0x7F800000) return __builtin_nanf("");
  const float scale = __builtin_bit_cast(float, most) / 127.0F;
  if (scale == 0.0F) {
    std::memset(codes, 0, kSuperBlockK);
    return scale;
  }
  const __m512 divisor = _mm512_set1_ps(scale);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSuperBlockK / kLanes; ++i) {
    const __m512 steps = _mm512_div_ps(row.of[i], divisor);
    const __m512 within =
        _mm512_min_ps(_mm512_max_ps(steps, _mm512_set1_ps(-127.0F)), _mm512_set1_ps(127.0F));
    // To even, as MXCSR is left.
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i * kLanes),
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within)));
  }
  return scale;
}

float quantise_i8(const float* x, float factor, std::size_t n, std::int8_t* codes) noexcept {
  Row row;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSuperBlockK / kLanes; ++i) {
    const std::size_t left = n > i * kLanes ? n - i * kLanes : 0;
    const __m512 numbers = left >= kLanes
                               ? _mm512_loadu_ps(x + i * kLanes)
                               : _mm512_maskz_loadu_ps(first_lanes(left), x + i * kLanes);
    row.of[i] = _mm512_mul_ps(numbers, _mm512_set1_ps(factor));
  }
  return quantise_row(row, codes);
}

/// A table of 256 bytes in registers: the lower seven bits choose in each half, the upper one
/// between them. (AVX2 would look 16 tables of 16 up, which is no faster than bytes one by one.)
struct ByteTable {
  __m512i low[2];
  __m512i high[2];

  LODE_KERNEL_INLINE explicit ByteTable(const std::uint8_t* of) noexcept
      : low{_mm512_loadu_si512(of), _mm512_loadu_si512(of + 64)},
        high{_mm512_loadu_si512(of + 128), _mm512_loadu_si512(of + 192)} {}
  LODE_KERNEL_INLINE __m512i look_up(__m512i codes) const noexcept {
    const __m512i below = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    const __m512i above = _mm512_permutex2var_epi8(high[0], codes, high[1]);
    return _mm512_mask_mov_epi8(below, _mm512_movepi8_mask(codes), above);
  }
};

void map_codes(const formats::CodeMap& map, const std::byte* codes, std::size_t n,
               std::byte* out) noexcept {
  constexpr std::size_t kBytes = 64;
  const ByteTable table(&map.of[0]);
  std::size_t i = 0;
  for (; i + kBytes <= n; i += kBytes) {
    _mm512_storeu_si512(out + i, table.look_up(_mm512_loadu_si512(codes + i)));
  }
  if (i == n) return;
  const __mmask64 rest = ~std::uint64_t{0} >> (kBytes - (n - i));
  _mm512_mask_storeu_epi8(out + i, rest, table.look_up(_mm512_maskz_loadu_epi8(rest, codes + i)));
}

}  // namespace

void install_numbers(KernelTable& table) noexcept {
  table.map_codes = map_codes;
  table.widen = widen;
  table.quantise_i8 = quantise_i8;
}

}  // namespace lode::kernels::avx512
