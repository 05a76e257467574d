#include "lode/kernels/avx512/fast_dot.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/activation.h"

// The law is scalar/fast_dot.cc; here 16 rows are the lanes of a register. Weight codes become
// unsigned bytes (code + bias) in dwords of 4 k a row, vpdpbusd multiplies them by one dword of
// activation codes broadcast to all rows, and the sums start at the corrections that take the bias
// out again. 32 k of one panel are decoded into 8 registers and used for all tokens of a block.

namespace lode::kernels::avx512 {
namespace {

/// Doubled E2M1 values + 12, four times over, so that vpermb ignores the other nibble's bits.
LODE_KERNEL_INLINE __m512i e2m1_table() noexcept {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

// A kind says: kLines, the lines of 32 k; decode, those lines as 8 registers that meet the packed
// activation's dwords 0..7; kTwoParts, whether k 0..15 and 16..31 have scales of their own;
// scale, the part_scale of 16 rows; kUnit.

template <bool kTwoPartsOf>
struct Fp4 {
  static constexpr std::size_t kLines = 4;
  static constexpr bool kTwoParts = kTwoPartsOf;
  __m512i table = e2m1_table();

  LODE_KERNEL_INLINE void decode(const std::byte* lines, __m512i (&out)[8]) const noexcept {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512i codes = load_line(lines + i * kLineBytes);
      out[2 * i] = _mm512_permutexvar_epi8(codes, table);
      out[2 * i + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), table);
    }
  }
};

struct Mxfp4 : Fp4<false> {
  static constexpr float kUnit = 0.5F;
  LODE_KERNEL_INLINE __m512 scale(const PanelShape&, const std::byte* scales, std::size_t k,
                                  std::size_t) const noexcept {
    const __m512i codes = _mm512_cvtepu8_epi32(load_16_bytes(scales + k / 32 * kPanelRows));
    return _mm512_castsi512_ps(_mm512_slli_epi32(codes, 23));
  }
};

struct Nvfp4 : Fp4<true> {
  static constexpr float kUnit = 128.0F;
  LODE_KERNEL_INLINE __m512 scale(const PanelShape&, const std::byte* scales, std::size_t k,
                                  std::size_t part) const noexcept {
    return e4m3_scales_over_256(scales + (k / 16 + part) * kPanelRows);
  }
};

struct I8 {
  static constexpr std::size_t kLines = 8;
  static constexpr bool kTwoParts = false;
  static constexpr float kUnit = 1.0F;

  LODE_KERNEL_INLINE void decode(const std::byte* lines, __m512i (&out)[8]) const noexcept {
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      out[i] = _mm512_xor_si512(load_line(lines + i * kLineBytes), bias);
    }
  }
  LODE_KERNEL_INLINE __m512 scale(const PanelShape& shape, const std::byte* scales, std::size_t k,
                                  std::size_t) const noexcept {
    return _mm512_loadu_ps(scales + k / shape.group_k * kLineBytes);
  }
};

LODE_KERNEL_INLINE __m512i broadcast_dword(const std::int8_t* from) noexcept {
  std::int32_t dword;
  std::memcpy(&dword, from, sizeof dword);
  return _mm512_set1_epi32(dword);
}

/// 16 k: four decoded registers times four dwords of codes, from a correction on.
LODE_KERNEL_INLINE __m512i half_sum(const __m512i* weights, const std::int8_t* codes,
                                    std::int32_t correction) noexcept {
  __m512i sum = _mm512_set1_epi32(correction);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    sum = _mm512_dpbusd_epi32(sum, weights[i], broadcast_dword(codes + 4 * i));
  }
  return sum;
}

/// One block of 32 k for one token.
template <class Kind>
LODE_KERNEL_INLINE __m512 add_block(const __m512i (&weights)[8], const __m512 (&scales)[2],
                                    const PackedBlock& x, __m512 acc) noexcept {
  const __m512i low = half_sum(weights, x.codes, x.corrections[0]);
  const __m512i high = half_sum(weights + 4, x.codes + 16, x.corrections[1]);
  const __m512 x_scale = _mm512_set1_ps(x.scale);
  if constexpr (Kind::kTwoParts) {
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(low), _mm512_mul_ps(scales[0], x_scale), acc);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_mul_ps(scales[1], x_scale), acc);
  }
  const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(low, high));
  return _mm512_fmadd_ps(sum, _mm512_mul_ps(scales[0], x_scale), acc);
}

template <class Kind>
LODE_KERNEL_INLINE __m512 finish(const MatrixScale& scale, __m512 sum) noexcept {
  const __m512 unit = _mm512_set1_ps(Kind::kUnit);
  if (scale.rule == formats::TensorScale::kMultiplier) {
    return _mm512_mul_ps(sum, _mm512_set1_ps(Kind::kUnit * scale.value));
  }
  if (scale.rule == formats::TensorScale::kDivisor) {
    return _mm512_div_ps(_mm512_mul_ps(sum, unit), _mm512_set1_ps(scale.value));
  }
  return _mm512_mul_ps(sum, unit);
}

/// `kTokens` tokens from `first` on with one panel.
template <class Kind, std::size_t kTokens, Prefetch kPrefetch>
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
    __m512 acc[kTokens];
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) acc[t] = _mm512_setzero_ps();
    const std::size_t block_bytes = call_.shape.super_block_bytes();
    const std::byte* codes = panel_;
    std::size_t begin = 0;
    for (; begin + kSuperBlockK <= call_.k; begin += kSuperBlockK) {
      constexpr std::size_t kCodeBytes =
          kSuperBlockK / kActivationBlock * Kind::kLines * kLineBytes;
      for (std::size_t k = 0; k < kSuperBlockK; k += kActivationBlock) {
        const std::byte* lines = codes + k / kActivationBlock * Kind::kLines * kLineBytes;
        prefetch<kPrefetch>(lines, Kind::kLines * kLineBytes);
        add(lines, codes + kCodeBytes, k, begin, acc);
      }
      prefetch<kPrefetch>(codes + kCodeBytes, block_bytes - kCodeBytes);
      codes += block_bytes;
    }
    if (begin < call_.k) tail(begin, acc);
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      _mm512_storeu_ps(y_[t], finish<Kind>(call_.scale, acc[t]));
    }
  }

 private:
  /// The 32 k from begin + k on, k counting inside a super-block.
  LODE_KERNEL_INLINE void add(const std::byte* lines, const std::byte* scales, std::size_t k,
                              std::size_t begin, __m512 (&acc)[kTokens]) const noexcept {
    __m512i weights[8];
    kind_.decode(lines, weights);
    __m512 part_scales[2];
    part_scales[0] = kind_.scale(call_.shape, scales, k, 0);
    if constexpr (Kind::kTwoParts) part_scales[1] = kind_.scale(call_.shape, scales, k, 1);
    const std::size_t block = (begin + k) / kActivationBlock;
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      acc[t] = add_block<Kind>(weights, part_scales, x_[t][block], acc[t]);
    }
  }

  /// The last super-block when it is short. Lines that do not exist count as zeros: their
  /// activation codes are.
  void tail(std::size_t begin, __m512 (&acc)[kTokens]) const noexcept {
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

template <class Kind, std::size_t kTokens, Prefetch kPrefetch = Prefetch::kYes>
void run_tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept {
  Tile<Kind, kTokens, kPrefetch>(call, panel, first).run();
}

/// All tokens with one panel, which stays in the cache.
template <class Kind>
void run_panel(const PanelDot& call, std::size_t panel) noexcept {
  std::size_t t = 0;
  for (; t + 8 <= call.num_tokens; t += 8) run_tile<Kind, 8>(call, panel, t);
  if (t + 4 <= call.num_tokens) run_tile<Kind, 4>(call, panel, t), t += 4;
  if (t + 2 <= call.num_tokens) run_tile<Kind, 2>(call, panel, t), t += 2;
  if (t < call.num_tokens) run_tile<Kind, 1>(call, panel, t);
}

template <class Kind, Prefetch kPrefetch>
void fast_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    if (call.num_tokens == 1) {
      run_tile<Kind, 1, kPrefetch>(call, panel, 0);
    } else {
      run_panel<Kind>(call, panel);
    }
  }
}

template <Prefetch kPrefetch>
void install_all(KernelTable& table) noexcept {
  table.fast_dot[static_cast<std::size_t>(PanelKind::kMxfp4)] = fast_dot<Mxfp4, kPrefetch>;
  table.fast_dot[static_cast<std::size_t>(PanelKind::kNvfp4)] = fast_dot<Nvfp4, kPrefetch>;
  table.fast_dot[static_cast<std::size_t>(PanelKind::kI8)] = fast_dot<I8, kPrefetch>;
}

}  // namespace

void install_fast_dot(KernelTable& table, Prefetch prefetch) noexcept {
  if (prefetch == Prefetch::kYes) {
    install_all<Prefetch::kYes>(table);
  } else {
    install_all<Prefetch::kNo>(table);
  }
}

}  // namespace lode::kernels::avx512
