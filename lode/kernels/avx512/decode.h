#pragma once

#include <immintrin.h>

#include "lode/formats/e4m3.h"
#include "lode/kernels/avx512/lines.h"
#include "lode/kernels/kernel_table.h"

// How the lines of each kind become registers of 16 floats, one a k. A decoder has kPerLine,
// kScaled, `decode` of one line, and `scales`, the block scales of a group, where there are any.

namespace lode::kernels::avx512 {

// Unnamed: their constructors would be weak symbols where nothing is inlined.
namespace {

struct F32Decoder {
  static constexpr std::size_t kPerLine = 1;
  static constexpr bool kScaled = false;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m512 (&out)[1]) const noexcept {
    out[0] = _mm512_loadu_ps(line);
  }
};

struct Bf16Decoder {
  static constexpr std::size_t kPerLine = 2;
  static constexpr bool kScaled = false;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m512 (&out)[2]) const noexcept {
    const __m512i codes = load_line(line);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(codes, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(codes, high));
  }
};

struct F16Decoder {
  static constexpr std::size_t kPerLine = 2;
  static constexpr bool kScaled = false;
  __m512i order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30,
                                   28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m512 (&out)[2]) const noexcept {
    // Even words to the lower half, odd ones to the upper.
    const __m512i sorted = _mm512_permutexvar_epi16(order, load_line(line));
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(sorted));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(sorted, 1));
  }
};

/// The upper two bytes of the floats of codes 0..127: the lower two are zeros.
struct E4m3Bytes {
  alignas(kLineBytes) std::uint8_t high[128];
  alignas(kLineBytes) std::uint8_t low[128];
};
consteval E4m3Bytes make_e4m3_bytes() {
  E4m3Bytes bytes{};
  for (std::size_t code = 0; code < 128; ++code) {
    const auto bits =
        __builtin_bit_cast(std::uint32_t, formats::decode_e4m3(static_cast<std::uint8_t>(code)));
    bytes.high[code] = static_cast<std::uint8_t>(bits >> 24);
    bytes.low[code] = static_cast<std::uint8_t>(bits >> 16);
  }
  return bytes;
}
constexpr E4m3Bytes kE4m3Bytes = make_e4m3_bytes();

/// 64 codes at once: two look-ups of 128 entries make bfloat16s in two registers of bytes, the
/// sign is carried over, and the bytes are brought together as the upper halves of floats.
struct E4m3Decoder {
  static constexpr std::size_t kPerLine = 4;
  static constexpr bool kScaled = true;
  __m512i high0 = _mm512_load_si512(kE4m3Bytes.high);
  __m512i high1 = _mm512_load_si512(kE4m3Bytes.high + 64);
  __m512i low0 = _mm512_load_si512(kE4m3Bytes.low);
  __m512i low1 = _mm512_load_si512(kE4m3Bytes.low + 64);

  LODE_KERNEL_INLINE void decode(const std::byte* line, __m512 (&out)[4]) const noexcept {
    constexpr int kAOrBAndC = 0xF8;   // of _mm512_ternarylogic: a | (b & c)
    constexpr int kSelectByC = 0xE4;  // (a & c) | (b & ~c), arguments a, b, c
    const __m512i codes = load_line(line);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i upper_bytes = _mm512_set1_epi16(static_cast<short>(0xFF00));
    const __m512i upper_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, codes, high1),
                                                   codes, sign, kAOrBAndC);
    // Words of k 0 and 2, then of k 1 and 3.
    const __m512i even =
        _mm512_ternarylogic_epi32(_mm512_slli_epi16(high, 8), low, upper_bytes, kSelectByC);
    const __m512i odd =
        _mm512_ternarylogic_epi32(high, _mm512_srli_epi16(low, 8), upper_bytes, kSelectByC);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(even, 16));
    out[1] = _mm512_castsi512_ps(_mm512_slli_epi32(odd, 16));
    out[2] = _mm512_castsi512_ps(_mm512_and_si512(even, upper_half));
    out[3] = _mm512_castsi512_ps(_mm512_and_si512(odd, upper_half));
  }
  LODE_KERNEL_INLINE __m512 scales(const std::byte* scales, std::size_t group) const noexcept {
    return _mm512_loadu_ps(scales + group * kLineBytes);
  }
};

struct I8Decoder {
  static constexpr std::size_t kPerLine = 4;
  static constexpr bool kScaled = true;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m512 (&out)[4]) const noexcept {
    const __m512i codes = load_line(line);
    out[0] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 24), 24));
    out[1] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 16), 24));
    out[2] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 8), 24));
    out[3] = _mm512_cvtepi32_ps(_mm512_srai_epi32(codes, 24));
  }
  LODE_KERNEL_INLINE __m512 scales(const std::byte* scales, std::size_t group) const noexcept {
    return _mm512_loadu_ps(scales + group * kLineBytes);
  }
};

/// vpermps reads the low four bits of a lane: a nibble, once it is shifted there.
struct Fp4Decoder {
  static constexpr std::size_t kPerLine = 8;
  static constexpr bool kScaled = true;
  __m512 table = _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F, -1.0F,
                                -1.5F, -2.0F, -3.0F, -4.0F, -6.0F);

  LODE_KERNEL_INLINE void decode(const std::byte* line, __m512 (&out)[8]) const noexcept {
    const __m512i codes = load_line(line);
#pragma GCC unroll 8
    for (unsigned k = 0; k < 8; ++k) {
      out[k] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * k), table);
    }
  }
};

struct Mxfp4Decoder : Fp4Decoder {
  LODE_KERNEL_INLINE __m512 scales(const std::byte* scales, std::size_t group) const noexcept {
    const __m512i codes = _mm512_cvtepu8_epi32(load_16_bytes(scales + group * kPanelRows));
    const __mmask16 zero = _mm512_testn_epi32_mask(codes, codes);
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
    __m512i bits = _mm512_slli_epi32(codes, 23);
    bits = _mm512_mask_mov_epi32(bits, zero, _mm512_set1_epi32(0x00400000));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7FC00000)));
  }
};

struct Nvfp4Decoder : Fp4Decoder {
  LODE_KERNEL_INLINE __m512 scales(const std::byte* scales, std::size_t group) const noexcept {
    const std::byte* at = scales + group * kPanelRows;
    const __m128i magnitudes = _mm_and_si128(load_16_bytes(at), _mm_set1_epi8(0x7F));
    const __mmask16 nan = _mm_cmpeq_epi8_mask(magnitudes, _mm_set1_epi8(0x7F));
    const __m512 values = _mm512_mul_ps(e4m3_scales_over_256(at), _mm512_set1_ps(256.0F));
    return _mm512_mask_mov_ps(values, nan, _mm512_set1_ps(__builtin_nanf("")));
  }
};

}  // namespace
}  // namespace lode::kernels::avx512
