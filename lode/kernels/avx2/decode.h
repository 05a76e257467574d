#pragma once

#include <immintrin.h>

#include "lode/kernels/kernel_table.h"

// How half a line, 8 rows, becomes registers of 8 floats, one a k. A decoder has kPerLine, kScaled,
// `decode`, and `scales`, the block scales of 8 rows, where there are any.

namespace lode::kernels::avx2 {

// Unnamed: their constructors would be weak symbols where nothing is inlined.
namespace {

constexpr std::size_t kRows = 8;
constexpr std::size_t kHalfLineBytes = 32;

LODE_KERNEL_INLINE __m256i load_half_line(const std::byte* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
LODE_KERNEL_INLINE __m128i load_8_bytes(const std::byte* from) noexcept {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
LODE_KERNEL_INLINE __m256 load_floats(const std::byte* from) noexcept {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
}

/// E4M3 scales of 8 rows divided by 256 (NaN codes: +-480): seeeemmm is the fp16 s0eeeemmm0000000.
LODE_KERNEL_INLINE __m256 e4m3_scales_over_256(const std::byte* scales) noexcept {
  const __m128i wide = _mm_cvtepi8_epi16(load_8_bytes(scales));
  const __m128i keep = _mm_set1_epi16(static_cast<short>(0xBF80));
  return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), keep));
}

struct F32Decoder {
  static constexpr std::size_t kPerLine = 1;
  static constexpr bool kScaled = false;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m256 (&out)[1]) const noexcept {
    out[0] = load_floats(line);
  }
};

struct Bf16Decoder {
  static constexpr std::size_t kPerLine = 2;
  static constexpr bool kScaled = false;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m256 (&out)[2]) const noexcept {
    const __m256i codes = load_half_line(line);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(codes, high));
  }
};

struct F16Decoder {
  static constexpr std::size_t kPerLine = 2;
  static constexpr bool kScaled = false;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m256 (&out)[2]) const noexcept {
    // Even words before odd ones in each half, then over the whole register.
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i halves = _mm256_shuffle_epi8(load_half_line(line), order);
    const __m256i sorted = _mm256_permute4x64_epi64(halves, 0xD8);
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
  }
};

struct E4m3Decoder {
  static constexpr std::size_t kPerLine = 4;
  static constexpr bool kScaled = true;

  /// Codes in the low bytes of dwords. Exponent and mantissa move to their places in a float; what
  /// has no exponent is mantissa * 2^-9.
  LODE_KERNEL_INLINE static __m256 value(__m256i codes) noexcept {
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7F));
    const __m256i normal =
        _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32((127 - 7) << 23));
    const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9F));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
    const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7F));
    const __m256i nan_bits = _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7FC00000));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 24);
    const __m256 number =
        _mm256_blendv_ps(_mm256_castsi256_ps(normal), small, _mm256_castsi256_ps(is_small));
    return _mm256_or_ps(number, _mm256_castsi256_ps(_mm256_or_si256(sign, nan_bits)));
  }
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m256 (&out)[4]) const noexcept {
    const __m256i codes = load_half_line(line);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) out[k] = value(_mm256_srli_epi32(codes, 8 * k));
  }
  LODE_KERNEL_INLINE __m256 scales(const std::byte* scales, std::size_t group,
                                   std::size_t half) const noexcept {
    return load_floats(scales + group * kLineBytes + half * kHalfLineBytes);
  }
};

struct I8Decoder {
  static constexpr std::size_t kPerLine = 4;
  static constexpr bool kScaled = true;
  LODE_KERNEL_INLINE void decode(const std::byte* line, __m256 (&out)[4]) const noexcept {
    const __m256i codes = load_half_line(line);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      out[k] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 24 - 8 * k), 24));
    }
  }
  LODE_KERNEL_INLINE __m256 scales(const std::byte* scales, std::size_t group,
                                   std::size_t half) const noexcept {
    return load_floats(scales + group * kLineBytes + half * kHalfLineBytes);
  }
};

/// vpermps reads the low three bits of a lane: the magnitude. Bit 3 is the sign.
struct Fp4Decoder {
  static constexpr std::size_t kPerLine = 8;
  static constexpr bool kScaled = true;
  __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);

  LODE_KERNEL_INLINE void decode(const std::byte* line, __m256 (&out)[8]) const noexcept {
    const __m256i codes = load_half_line(line);
    const __m256i sign_bit = _mm256_set1_epi32(static_cast<int>(0x80000000u));
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28 - 4 * k), sign_bit);
      const __m256 value = _mm256_permutevar8x32_ps(table, _mm256_srli_epi32(codes, 4 * k));
      out[k] = _mm256_or_ps(value, _mm256_castsi256_ps(sign));
    }
  }
};

struct Mxfp4Decoder : Fp4Decoder {
  LODE_KERNEL_INLINE __m256 scales(const std::byte* scales, std::size_t group,
                                   std::size_t half) const noexcept {
    const std::byte* at = scales + group * kPanelRows + half * kRows;
    const __m256i codes = _mm256_cvtepu8_epi32(load_8_bytes(at));
    const __m256i zero = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
    const __m256i nan = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(255));
    const __m256i odd = _mm256_or_si256(_mm256_and_si256(zero, _mm256_set1_epi32(0x00400000)),
                                        _mm256_and_si256(nan, _mm256_set1_epi32(0x00400000)));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(codes, 23), odd));
  }
};

struct Nvfp4Decoder : Fp4Decoder {
  LODE_KERNEL_INLINE __m256 scales(const std::byte* scales, std::size_t group,
                                   std::size_t half) const noexcept {
    const std::byte* at = scales + group * kPanelRows + half * kRows;
    const __m256 value = _mm256_mul_ps(e4m3_scales_over_256(at), _mm256_set1_ps(256.0F));
    const __m256i magnitude =
        _mm256_and_si256(_mm256_cvtepu8_epi32(load_8_bytes(at)), _mm256_set1_epi32(0x7F));
    const __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7F));
    return _mm256_or_ps(value, _mm256_castsi256_ps(nan));  // all bits set is a NaN
  }
};

}  // namespace
}  // namespace lode::kernels::avx2
