#include "lode/kernels/avx2/exact_dot.h"

#include <cstring>

#include "lode/kernels/activation.h"
#include "lode/kernels/avx2/decode.h"

// The law is scalar/exact_dot.cc. A register holds 8 rows, half a line. One token takes both halves
// of a line at once, so that memory is read in order; two tokens take one half after the other,
// for sixteen registers hold no more chains. The fast kernel of E4M3 is the same but for where the
// scales come in (scalar/fast_dot.cc).

namespace lode::kernels::avx2 {
namespace {

constexpr std::size_t kStep = 8;

LODE_KERNEL_INLINE __m256 apply(const MatrixScale& scale, __m256 scales) noexcept {
  const __m256 value = _mm256_set1_ps(scale.value);
  if (scale.rule == formats::TensorScale::kMultiplier) return _mm256_mul_ps(scales, value);
  if (scale.rule == formats::TensorScale::kDivisor) return _mm256_div_ps(scales, value);
  return scales;
}

/// Which tokens and which rows of which panel.
struct Place {
  std::size_t panel;
  std::size_t half;
  std::size_t token;
};

/// Whether a group's scale multiplies its weights (the law of exact_dot) or its sum.
enum class Scales : bool { kOnWeights, kOnSums };

template <class Decoder, Scales kScales, std::size_t kTokens, std::size_t kHalves>
class Tile {
  static constexpr bool kGrouped = kScales == Scales::kOnSums;

 public:
  LODE_KERNEL_INLINE Tile(const PanelDot& call, const Place& at) noexcept
      : call_(call), panel_(call.panels + at.panel * call.panel_stride_bytes), half_(at.half) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      x_[t] = reinterpret_cast<const float*>(activation_row(call, at.token + t));
      y_[t] = call.y + (at.token + t) * call.y_stride + at.panel * kPanelRows + at.half * kRows;
    }
  }

  LODE_KERNEL_INLINE void run() noexcept {
    Sums sums;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kTokens * kHalves; ++i) {
      sums.total[i] = _mm256_setzero_ps();
      clear(sums.chains[i]);
    }
    const std::size_t block_bytes = call_.shape.super_block_bytes();
    const std::byte* codes = panel_;
    std::size_t begin = 0;
    for (; begin + kSuperBlockK <= call_.k; begin += kSuperBlockK) {
      constexpr std::size_t kCodeBytes = kSuperBlockK / Decoder::kPerLine * kLineBytes;
      add_groups<false>({codes, codes + kCodeBytes, kSuperBlockK}, begin, sums);
      codes += block_bytes;
    }
    if (begin < call_.k) tail(begin, sums);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kTokens * kHalves; ++i) {
      const __m256 sum = kGrouped ? apply(call_.scale, sums.total[i]) : join(sums.chains[i]);
      _mm256_storeu_ps(y_[i / kHalves] + i % kHalves * kRows, sum);
    }
  }

 private:
  static constexpr std::size_t kStepBytes = kStep / Decoder::kPerLine * kLineBytes;
  using Chains = __m256[4];
  struct Sums {
    Chains chains[kTokens * kHalves];
    __m256 total[kTokens * kHalves];  // of the groups that are done, if kGrouped
  };
  struct HalfScales {
    __m256 of[kHalves];
  };

  LODE_KERNEL_INLINE static void clear(Chains& chains) noexcept {
#pragma GCC unroll 4
    for (std::size_t c = 0; c < 4; ++c) chains[c] = _mm256_setzero_ps();
  }
  LODE_KERNEL_INLINE static __m256 join(const Chains& chains) noexcept {
    return _mm256_add_ps(_mm256_add_ps(chains[0], chains[1]), _mm256_add_ps(chains[2], chains[3]));
  }

  LODE_KERNEL_INLINE __m256 multiplier(const std::byte* scales, std::size_t group,
                                       std::size_t half) const noexcept {
    if constexpr (kGrouped) return decoder_.scales(scales, group, half);
    if constexpr (Decoder::kScaled) return apply(call_.scale, decoder_.scales(scales, group, half));
    return _mm256_setzero_ps();  // not used
  }

  template <bool kMayBeShort>
  LODE_KERNEL_INLINE void add_groups(const SuperBlock& block, std::size_t begin,
                                     Sums& sums) const noexcept {
    const std::byte* lines = block.codes;
    const std::size_t group_k = Decoder::kScaled ? call_.shape.group_k : kSuperBlockK;
    for (std::size_t group = 0, k = 0; k < block.k; ++group) {
      HalfScales scales;
      for (std::size_t h = 0; h < kHalves; ++h) {
        scales.of[h] = multiplier(block.scales, group, half_ + h);
      }
      const std::size_t end = k + group_k < block.k ? k + group_k : block.k;
      for (; k + kStep <= end; k += kStep) {
        add_step(lines, scales, begin + k, sums);
        lines += kStepBytes;
      }
      if (kMayBeShort && k < end) {
        add_short_step(lines, scales, begin + k, end - k, sums);
        k = end;
      }
      if constexpr (kGrouped) close_group(scales, sums);
    }
  }

  LODE_KERNEL_INLINE void close_group(const HalfScales& scales, Sums& sums) const noexcept {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kTokens * kHalves; ++i) {
      sums.total[i] = _mm256_fmadd_ps(join(sums.chains[i]), scales.of[i % kHalves], sums.total[i]);
      clear(sums.chains[i]);
    }
  }

  LODE_KERNEL_INLINE void add_step(const std::byte* lines, const HalfScales& scales, std::size_t k,
                                   Sums& sums, std::size_t n = kStep) const noexcept {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kStep / Decoder::kPerLine * kHalves; ++i) {
      const std::size_t line = i / kHalves, h = i % kHalves;
      __m256 weights[Decoder::kPerLine];
      decoder_.decode(lines + line * kLineBytes + (half_ + h) * kHalfLineBytes, weights);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < Decoder::kPerLine; ++j) {
        const std::size_t at = line * Decoder::kPerLine + j;
        if (at >= n) continue;
        if constexpr (Decoder::kScaled && !kGrouped) {
          weights[j] = _mm256_mul_ps(weights[j], scales.of[h]);
        }
        add(weights[j], k, at, h, sums);
      }
    }
  }

  LODE_KERNEL_INLINE void add(__m256 weight, std::size_t k, std::size_t i, std::size_t h,
                              Sums& sums) const noexcept {
#pragma GCC unroll 2
    for (std::size_t t = 0; t < kTokens; ++t) {
      __m256& chain = sums.chains[t * kHalves + h][i % 4];
      chain = _mm256_fmadd_ps(weight, _mm256_broadcast_ss(x_[t] + k + i), chain);
    }
  }

  /// n < kStep numbers: lines that do not exist are not read.
  LODE_KERNEL_INLINE void add_short_step(const std::byte* lines, const HalfScales& scales,
                                         std::size_t k, std::size_t n, Sums& sums) const noexcept {
    alignas(kLineBytes) std::byte padded[kStepBytes] = {};
    std::memcpy(padded, lines, call_.shape.code_lines(n) * kLineBytes);
    add_step(padded, scales, k, sums, n);
  }

  void tail(std::size_t begin, Sums& sums) const noexcept {
    add_groups<true>(super_block(call_.shape, panel_, begin, call_.k), begin, sums);
  }

  const PanelDot& call_;
  const std::byte* panel_;
  std::size_t half_;
  Decoder decoder_;
  const float* x_[kTokens];
  float* y_[kTokens];
};

template <class Decoder, Scales kScales, std::size_t kTokens, std::size_t kHalves>
void run_tile(const PanelDot& call, const Place& at) noexcept {
  Tile<Decoder, kScales, kTokens, kHalves>(call, at).run();
}

template <class Decoder, Scales kScales = Scales::kOnWeights>
void dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    std::size_t t = 0;
    for (; t + 2 <= call.num_tokens; t += 2) {
      run_tile<Decoder, kScales, 2, 1>(call, {panel, 0, t});
      run_tile<Decoder, kScales, 2, 1>(call, {panel, 1, t});
    }
    if (t < call.num_tokens) run_tile<Decoder, kScales, 1, 2>(call, {panel, 0, t});
  }
}

void put(KernelTable& table, PanelKind kind, PanelDotFn exact, PanelDotFn fast) noexcept {
  const auto at = static_cast<std::size_t>(kind);
  table.exact_dot[at] = exact;
  if (fast != nullptr) table.fast_dot[at] = fast;
}

}  // namespace

void install_exact_dot(KernelTable& table) noexcept {
  put(table, PanelKind::kF32, dot<F32Decoder>, dot<F32Decoder>);
  put(table, PanelKind::kF16, dot<F16Decoder>, dot<F16Decoder>);
  put(table, PanelKind::kBf16, dot<Bf16Decoder>, dot<Bf16Decoder>);
  put(table, PanelKind::kE4m3, dot<E4m3Decoder>, dot<E4m3Decoder, Scales::kOnSums>);
  put(table, PanelKind::kI8, dot<I8Decoder>, nullptr);
  put(table, PanelKind::kMxfp4, dot<Mxfp4Decoder>, nullptr);
  put(table, PanelKind::kNvfp4, dot<Nvfp4Decoder>, nullptr);
}

}  // namespace lode::kernels::avx2
