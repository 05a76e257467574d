#include "lode/kernels/avx2/fast_dot.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/activation.h"
#include "lode/kernels/avx2/decode.h"

// The law is scalar/fast_dot.cc. A register holds 8 rows, half a line; both halves of 32 k are used
// for all tokens of a tile before the next 32 k are read.

namespace lode::kernels::avx2 {
namespace {

LODE_KERNEL_INLINE __m256i broadcast_dword(const std::int8_t* from) noexcept {
  std::int32_t dword;
  std::memcpy(&dword, from, sizeof dword);
  return _mm256_set1_epi32(dword);
}

LODE_KERNEL_INLINE __m256i pairs_of_words(__m256i words) noexcept {
  return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

// A kind says: kLines, the lines of 32 k; decode, 8 rows of them as registers that meet the packed
// activation's dwords 0..7; sum of 16 k; kTwoParts, whether k 0..15 and 16..31 have scales of their
// own; scale, the part_scale of 8 rows; kUnit.

template <bool kTwoPartsOf>
struct Fp4 {
  static constexpr std::size_t kLines = 4;
  static constexpr bool kTwoParts = kTwoPartsOf;
  // Doubled E2M1 values + 12.
  __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

  LODE_KERNEL_INLINE void decode(const std::byte* lines, __m256i (&out)[8]) const noexcept {
    const __m256i nibble = _mm256_set1_epi8(0xF);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const __m256i codes = load_half_line(lines + i * kLineBytes);
      out[2 * i] = _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibble));
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
      out[2 * i + 1] = _mm256_shuffle_epi8(table, high);
    }
  }
  /// Four products of two are at most 4 * 2 * 24 * 127 = 24384: words hold them.
  LODE_KERNEL_INLINE static __m256i sum(const __m256i* weights, const std::int8_t* codes,
                                        std::int32_t correction) noexcept {
    __m256i words = _mm256_maddubs_epi16(weights[0], broadcast_dword(codes));
#pragma GCC unroll 3
    for (std::size_t i = 1; i < 4; ++i) {
      words =
          _mm256_add_epi16(words, _mm256_maddubs_epi16(weights[i], broadcast_dword(codes + 4 * i)));
    }
    return _mm256_add_epi32(pairs_of_words(words), _mm256_set1_epi32(correction));
  }
};

struct Mxfp4 : Fp4<false> {
  static constexpr float kUnit = 0.5F;
  LODE_KERNEL_INLINE __m256 scale(const PanelShape&, const std::byte* scales,
                                  std::size_t k) const noexcept {
    const __m256i codes = _mm256_cvtepu8_epi32(load_8_bytes(scales + k / 32 * kPanelRows));
    return _mm256_castsi256_ps(_mm256_slli_epi32(codes, 23));
  }
};

struct Nvfp4 : Fp4<true> {
  static constexpr float kUnit = 128.0F;
  LODE_KERNEL_INLINE __m256 scale(const PanelShape&, const std::byte* scales,
                                  std::size_t k) const noexcept {
    return e4m3_scales_over_256(scales + k / 16 * kPanelRows);
  }
};

struct I8 {
  static constexpr std::size_t kLines = 8;
  static constexpr bool kTwoParts = false;
  static constexpr float kUnit = 1.0F;

  LODE_KERNEL_INLINE void decode(const std::byte* lines, __m256i (&out)[8]) const noexcept {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) out[i] = load_half_line(lines + i * kLineBytes);
  }
  /// |w| * (x with the sign of w): two products are at most 2 * 128 * 127 = 32512, which a word
  /// just holds; so pairs are joined at once, and no bias is in them that a correction must undo.
  LODE_KERNEL_INLINE static __m256i sum(const __m256i* weights, const std::int8_t* codes,
                                        std::int32_t) noexcept {
    __m256i total = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const __m256i x = _mm256_sign_epi8(broadcast_dword(codes + 4 * i), weights[i]);
      const __m256i words = _mm256_maddubs_epi16(_mm256_abs_epi8(weights[i]), x);
      total = _mm256_add_epi32(total, pairs_of_words(words));
    }
    return total;
  }
  LODE_KERNEL_INLINE __m256 scale(const PanelShape& shape, const std::byte* scales,
                                  std::size_t k) const noexcept {
    return load_floats(scales + k / shape.group_k * kLineBytes);
  }
};

template <class Kind>
LODE_KERNEL_INLINE __m256 add_block(const __m256i (&weights)[8], const __m256 (&scales)[2],
                                    const PackedBlock& x, __m256 acc) noexcept {
  const __m256i low = Kind::sum(weights, x.codes, x.corrections[0]);
  const __m256i high = Kind::sum(weights + 4, x.codes + 16, x.corrections[1]);
  const __m256 x_scale = _mm256_set1_ps(x.scale);
  if constexpr (Kind::kTwoParts) {
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(low), _mm256_mul_ps(scales[0], x_scale), acc);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_mul_ps(scales[1], x_scale), acc);
  }
  const __m256 sum = _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));
  return _mm256_fmadd_ps(sum, _mm256_mul_ps(scales[0], x_scale), acc);
}

template <class Kind>
LODE_KERNEL_INLINE __m256 finish(const MatrixScale& scale, __m256 sum) noexcept {
  const __m256 unit = _mm256_set1_ps(Kind::kUnit);
  if (scale.rule == formats::TensorScale::kMultiplier) {
    return _mm256_mul_ps(sum, _mm256_set1_ps(Kind::kUnit * scale.value));
  }
  if (scale.rule == formats::TensorScale::kDivisor) {
    return _mm256_div_ps(_mm256_mul_ps(sum, unit), _mm256_set1_ps(scale.value));
  }
  return _mm256_mul_ps(sum, unit);
}

template <class Kind, std::size_t kTokens>
class Tile {
 public:
  LODE_KERNEL_INLINE Tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept
      : call_(call), panel_(call.panels + panel * call.panel_stride_bytes) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      x_[t] = packed_row(activation_row(call, first + t));
      y_[t] = call.y + (first + t) * call.y_stride + panel * kPanelRows;
    }
  }

  LODE_KERNEL_INLINE void run() noexcept {
    Acc acc;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 2 * kTokens; ++i) acc[i % 2][i / 2] = _mm256_setzero_ps();
    const std::size_t block_bytes = call_.shape.super_block_bytes();
    const std::byte* codes = panel_;
    std::size_t begin = 0;
    for (; begin + kSuperBlockK <= call_.k; begin += kSuperBlockK) {
      constexpr std::size_t kLines = kSuperBlockK / kActivationBlock * Kind::kLines;
      for (std::size_t k = 0; k < kSuperBlockK; k += kActivationBlock) {
        const std::byte* lines = codes + k / kActivationBlock * Kind::kLines * kLineBytes;
        add(lines, codes + kLines * kLineBytes, k, begin, acc);
      }
      codes += block_bytes;
    }
    if (begin < call_.k) tail(begin, acc);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 2 * kTokens; ++i) {
      _mm256_storeu_ps(y_[i / 2] + i % 2 * kRows, finish<Kind>(call_.scale, acc[i % 2][i / 2]));
    }
  }

 private:
  using Acc = __m256[2][kTokens];

  /// The 32 k from begin + k on, k counting inside a super-block.
  LODE_KERNEL_INLINE void add(const std::byte* lines, const std::byte* scales, std::size_t k,
                              std::size_t begin, Acc& acc) const noexcept {
    const std::size_t scale_half = kRows * call_.shape.scale_bytes;
#pragma GCC unroll 2
    for (std::size_t h = 0; h < 2; ++h) {
      __m256i weights[8];
      kind_.decode(lines + h * kHalfLineBytes, weights);
      __m256 part[2];
      part[0] = kind_.scale(call_.shape, scales + h * scale_half, k);
      if constexpr (Kind::kTwoParts) {
        part[1] = kind_.scale(call_.shape, scales + h * scale_half, k + 16);
      }
#pragma GCC unroll 4
      for (std::size_t t = 0; t < kTokens; ++t) {
        const PackedBlock& x = x_[t][(begin + k) / kActivationBlock];
        acc[h][t] = add_block<Kind>(weights, part, x, acc[h][t]);
      }
    }
  }

  /// The last super-block when it is short. Lines that do not exist count as zeros: their
  /// activation codes are.
  void tail(std::size_t begin, Acc& acc) const noexcept {
    const SuperBlock block = super_block(call_.shape, panel_, begin, call_.k);
    std::size_t k = 0;
    const std::byte* lines = block.codes;
    for (; k + kActivationBlock <= block.k; k += kActivationBlock) {
      add(lines, block.scales, k, begin, acc);
      lines += Kind::kLines * kLineBytes;
    }
    if (k == block.k) return;
    alignas(kLineBytes) std::byte padded[Kind::kLines * kLineBytes] = {};
    std::memcpy(padded, lines, call_.shape.code_lines(block.k - k) * kLineBytes);
    add(padded, block.scales, k, begin, acc);
  }

  const PanelDot& call_;
  const std::byte* panel_;
  Kind kind_;
  const PackedBlock* x_[kTokens];
  float* y_[kTokens];
};

template <class Kind, std::size_t kTokens>
void run_tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept {
  Tile<Kind, kTokens>(call, panel, first).run();
}

template <class Kind>
void fast_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    std::size_t t = 0;
    for (; t + 4 <= call.num_tokens; t += 4) run_tile<Kind, 4>(call, panel, t);
    if (t + 2 <= call.num_tokens) run_tile<Kind, 2>(call, panel, t), t += 2;
    if (t < call.num_tokens) run_tile<Kind, 1>(call, panel, t);
  }
}

}  // namespace

void install_fast_dot(KernelTable& table) noexcept {
  table.fast_dot[static_cast<std::size_t>(PanelKind::kMxfp4)] = fast_dot<Mxfp4>;
  table.fast_dot[static_cast<std::size_t>(PanelKind::kNvfp4)] = fast_dot<Nvfp4>;
  table.fast_dot[static_cast<std::size_t>(PanelKind::kI8)] = fast_dot<I8>;
}

}  // namespace lode::kernels::avx2
