#include "lode/kernels/avx2/online.h"

#include <immintrin.h>

namespace lode::kernels::avx2 {
namespace {

using formats::Format;
using formats::pieces::kPiece;
using formats::pieces::Op;

constexpr std::size_t kLanes = 8;
constexpr std::size_t kBytes = 32;  // of codes, that are stored at once

template <bool kBf16>
__m256 widen(const std::uint16_t* raw) noexcept {
  const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(raw));
  if constexpr (kBf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(numbers), 16));
  } else {
    return _mm256_cvtph_ps(numbers);
  }
}

/// Rounds magnitudes to even in the bits above `kShift`; below `least`, where codes have no leading
/// one, by a sum with `one`, whose steps are theirs.
template <int kShift>
__m256i rounded(__m256i magnitude, int offset, int least, float one) noexcept {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, kShift), _mm256_set1_epi32(1));
  const __m256i half = _mm256_set1_epi32((1 << (kShift - 1)) - 1);
  const __m256i up = _mm256_add_epi32(magnitude, _mm256_add_epi32(half, odd));
  const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(up, kShift), _mm256_set1_epi32(offset));
  const __m256 base = _mm256_set1_ps(one);
  const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(magnitude), base);
  const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(sum), _mm256_castps_si256(base));
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(least), magnitude);
  return _mm256_blendv_epi8(normal, subnormal, is_small);
}

/// As formats::pieces::e4m3_code, one in 32 bits.
__m256i e4m3_codes(__m256 value) noexcept {
  // The minimum of NaN and a number is the number.
  const __m256 below = _mm256_min_ps(value, _mm256_set1_ps(448.0F));
  const __m256i bits = _mm256_castps_si256(_mm256_max_ps(below, _mm256_set1_ps(-448.0F)));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i code = rounded<20>(magnitude, 120 << 3, 0x3C800000, 0x1p14F);
  return _mm256_or_si256(code,
                         _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

/// As formats::pieces::e2m1_code, one in 32 bits.
__m256i e2m1_codes(__m256 value) noexcept {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i whole = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i magnitude = _mm256_min_epi32(whole, _mm256_set1_epi32(0x40C00000));
  const __m256i code = rounded<22>(magnitude, 126 << 1, 0x3F800000, 0x1p22F);
  return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(bits, 28), _mm256_set1_epi32(8)));
}

template <bool kBf16, Op kOp>
__m256i codes_of(const std::uint16_t* raw, const float* factors) noexcept {
  const __m256 value = widen<kBf16>(raw);
  const __m256 factor = _mm256_loadu_ps(factors);
  if constexpr (kOp == Op::kE2m1Product) return e2m1_codes(_mm256_mul_ps(value, factor));
  return e4m3_codes(kOp == Op::kE4m3Quotient ? _mm256_div_ps(value, factor)
                                             : _mm256_mul_ps(value, factor));
}

template <bool kBf16, Op kOp>
void encode_all(const std::uint16_t* raw, const float* factors, std::uint8_t* codes) noexcept {
  for (std::size_t i = 0; i < kPiece; i += kBytes) {
    __m256i part[4];
    for (std::size_t j = 0; j < 4; ++j) {
      part[j] = codes_of<kBf16, kOp>(raw + i + j * kLanes, factors + i + j * kLanes);
    }
    // Packing works within halves: the words are turned round afterwards.
    const __m256i mixed = _mm256_packus_epi16(_mm256_packus_epi32(part[0], part[1]),
                                              _mm256_packus_epi32(part[2], part[3]));
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if constexpr (kOp == Op::kE2m1Product) {
      const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i / 2), _mm256_castsi256_si128(packed));
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), bytes);
    }
  }
}

template <bool kBf16>
void encode_of(Op op, const std::uint16_t* raw, const float* factors,
               std::uint8_t* codes) noexcept {
  switch (op) {
    case Op::kE4m3Product:
      return encode_all<kBf16, Op::kE4m3Product>(raw, factors, codes);
    case Op::kE4m3Quotient:
      return encode_all<kBf16, Op::kE4m3Quotient>(raw, factors, codes);
    case Op::kE2m1Product:
      return encode_all<kBf16, Op::kE2m1Product>(raw, factors, codes);
  }
}

void encode(Op op, Format from, const std::uint16_t* raw, const float* factors,
            std::uint8_t* codes) noexcept {
  return from == Format::kBf16 ? encode_of<true>(op, raw, factors, codes)
                               : encode_of<false>(op, raw, factors, codes);
}

}  // namespace

void install_online(KernelTable& table) noexcept { table.encode_piece = encode; }

}  // namespace lode::kernels::avx2
