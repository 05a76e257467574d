#include "lode/kernels/avx512/online.h"

#include <immintrin.h>

namespace lode::kernels::avx512 {
namespace {

using formats::Format;
using formats::pieces::kPiece;
using formats::pieces::Op;

constexpr std::size_t kLanes = 16;

template <bool kBf16>
__m512 widen(const std::uint16_t* raw) noexcept {
  const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(raw));
  if constexpr (kBf16) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16));
  } else {
    return _mm512_cvtph_ps(numbers);
  }
}

/// Rounds magnitudes to even in the bits above `kShift`; below `least`, where codes have no leading
/// one, by a sum with `one`, whose steps are theirs.
template <int kShift>
__m512i rounded(__m512i magnitude, int offset, int least, float one) noexcept {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, kShift), _mm512_set1_epi32(1));
  const __m512i half = _mm512_set1_epi32((1 << (kShift - 1)) - 1);
  const __m512i up = _mm512_add_epi32(magnitude, _mm512_add_epi32(half, odd));
  const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(up, kShift), _mm512_set1_epi32(offset));
  const __m512 base = _mm512_set1_ps(one);
  const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(magnitude), base);
  const __m512i subnormal = _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(base));
  const __mmask16 is_small = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(least));
  return _mm512_mask_mov_epi32(normal, is_small, subnormal);
}

/// As formats::pieces::e4m3_code.
__m128i e4m3_codes(__m512 value) noexcept {
  // The minimum of NaN and a number is the number.
  const __m512 below = _mm512_min_ps(value, _mm512_set1_ps(448.0F));
  const __m512i bits = _mm512_castps_si512(_mm512_max_ps(below, _mm512_set1_ps(-448.0F)));
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __m512i code = rounded<20>(magnitude, 120 << 3, 0x3C800000, 0x1p14F);
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
  return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
}

/// As formats::pieces::e2m1_code, two in a byte: 8 bytes.
__m128i e2m1_pairs(__m512 value) noexcept {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i whole = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __m512i magnitude = _mm512_min_epi32(whole, _mm512_set1_epi32(0x40C00000));
  const __m512i code = rounded<22>(magnitude, 126 << 1, 0x3F800000, 0x1p22F);
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 28), _mm512_set1_epi32(8));
  const __m128i codes = _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
  return _mm_cvtepi16_epi8(_mm_or_si128(codes, _mm_srli_epi16(codes, 4)));
}

template <bool kBf16, Op kOp>
void encode_all(const std::uint16_t* raw, const float* factors, std::uint8_t* codes) noexcept {
  for (std::size_t i = 0; i < kPiece; i += kLanes) {
    const __m512 value = widen<kBf16>(raw + i);
    const __m512 factor = _mm512_loadu_ps(factors + i);
    if constexpr (kOp == Op::kE2m1Product) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i / 2),
                       e2m1_pairs(_mm512_mul_ps(value, factor)));
    } else {
      const __m512 scaled =
          kOp == Op::kE4m3Quotient ? _mm512_div_ps(value, factor) : _mm512_mul_ps(value, factor);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), e4m3_codes(scaled));
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

}  // namespace lode::kernels::avx512
