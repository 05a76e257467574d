#include "lode/kernels/avx2/exact_dot.h"

#include <cstring>

#include "lode/kernels/activation.h"
#include "lode/kernels/avx2/decode.h"

// The law is scalar/exact_dot.cc. A register holds 8 rows, half a line. One token takes both halves
// of a line at once, so that memory is read in order; two tokens take one half after the other,
// for sixteen registers hold no more chains.

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

template <class Decoder, std::size_t kTokens, std::size_t kHalves>
class Tile {
 public:
  LODE_KERNEL_INLINE Tile(const PanelDot& call, const Place& at) noexcept
      : call_(call), panel_(call.panels + at.panel * call.panel_stride_bytes), half_(at.half) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      x_[t] = reinterpret_cast<const float*>(activation_row(call, at.token + t));
      y_[t] = call.y + (at.token + t) * call.y_stride + at.panel * kPanelRows + at.half * kRows;
    }
  }

  LODE_KERNEL_INLINE void run() noexcept {
    Chains chains;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 4 * kTokens * kHalves; ++i) {
      chains[i / 4][i % 4] = _mm256_setzero_ps();
    }
    const std::size_t block_bytes = call_.shape.super_block_bytes();
    const std::byte* codes = panel_;
    std::size_t begin = 0;
    for (; begin + kSuperBlockK <= call_.k; begin += kSuperBlockK) {
      constexpr std::size_t kCodeBytes = kSuperBlockK / Decoder::kPerLine * kLineBytes;
      add_groups({codes, codes + kCodeBytes, kSuperBlockK}, begin, chains);
      codes += block_bytes;
    }
    if (begin < call_.k) tail(begin, chains);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kTokens * kHalves; ++i) {
      const __m256 even = _mm256_add_ps(chains[i][0], chains[i][1]);
      const __m256 odd = _mm256_add_ps(chains[i][2], chains[i][3]);
      _mm256_storeu_ps(y_[i / kHalves] + i % kHalves * kRows, _mm256_add_ps(even, odd));
    }
  }

 private:
  using Chains = __m256[kTokens * kHalves][4];
  static constexpr std::size_t kStepBytes = kStep / Decoder::kPerLine * kLineBytes;
  struct Scales {
    __m256 of[kHalves];
  };

  LODE_KERNEL_INLINE Scales multipliers(const std::byte* scales, std::size_t group) const noexcept {
    Scales result;
#pragma GCC unroll 2
    for (std::size_t h = 0; h < kHalves; ++h) {
      if constexpr (Decoder::kScaled) {
        result.of[h] = apply(call_.scale, decoder_.scales(scales, group, half_ + h));
      } else {
        result.of[h] = _mm256_setzero_ps();  // not used
      }
    }
    return result;
  }

  LODE_KERNEL_INLINE void add_groups(const SuperBlock& block, std::size_t begin,
                                     Chains& chains) const noexcept {
    const std::byte* lines = block.codes;
    const std::size_t group_k = Decoder::kScaled ? call_.shape.group_k : kSuperBlockK;
    const std::size_t whole = block.k / kStep * kStep;
    for (std::size_t group = 0, k = 0; k < whole; ++group) {
      const Scales scales = multipliers(block.scales, group);
      const std::size_t end = k + group_k < whole ? k + group_k : whole;
      for (; k < end; k += kStep) {
        add_step(lines, scales, begin + k, chains);
        lines += kStepBytes;
      }
    }
  }

  LODE_KERNEL_INLINE void add_step(const std::byte* lines, const Scales& scales, std::size_t k,
                                   Chains& chains, std::size_t n = kStep) const noexcept {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kStep / Decoder::kPerLine * kHalves; ++i) {
      const std::size_t line = i / kHalves, h = i % kHalves;
      __m256 weights[Decoder::kPerLine];
      decoder_.decode(lines + line * kLineBytes + (half_ + h) * kHalfLineBytes, weights);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < Decoder::kPerLine; ++j) {
        const std::size_t at = line * Decoder::kPerLine + j;
        if (at >= n) continue;
        if constexpr (Decoder::kScaled) weights[j] = _mm256_mul_ps(weights[j], scales.of[h]);
        add(weights[j], k + at, at % 4, h, chains);
      }
    }
  }

  LODE_KERNEL_INLINE void add(__m256 weight, std::size_t k, std::size_t chain, std::size_t h,
                              Chains& chains) const noexcept {
#pragma GCC unroll 2
    for (std::size_t t = 0; t < kTokens; ++t) {
      __m256& sum = chains[t * kHalves + h][chain];
      sum = _mm256_fmadd_ps(weight, _mm256_broadcast_ss(x_[t] + k), sum);
    }
  }

  /// The last super-block when it is short, with a last step that may be short too.
  void tail(std::size_t begin, Chains& chains) const noexcept {
    const SuperBlock block = super_block(call_.shape, panel_, begin, call_.k);
    add_groups(block, begin, chains);
    const std::size_t left = block.k % kStep;
    if (left == 0) return;
    const std::size_t k = block.k - left;
    alignas(kLineBytes) std::byte padded[kStepBytes] = {};
    std::memcpy(padded, block.codes + k / kStep * kStepBytes,
                call_.shape.code_lines(left) * kLineBytes);
    const std::size_t group = Decoder::kScaled ? k / call_.shape.group_k : 0;
    add_step(padded, multipliers(block.scales, group), begin + k, chains, left);
  }

  const PanelDot& call_;
  const std::byte* panel_;
  std::size_t half_;
  Decoder decoder_;
  const float* x_[kTokens];
  float* y_[kTokens];
};

template <class Decoder, std::size_t kTokens, std::size_t kHalves>
void run_tile(const PanelDot& call, const Place& at) noexcept {
  Tile<Decoder, kTokens, kHalves>(call, at).run();
}

template <class Decoder>
void exact_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    std::size_t t = 0;
    for (; t + 2 <= call.num_tokens; t += 2) {
      run_tile<Decoder, 2, 1>(call, {panel, 0, t});
      run_tile<Decoder, 2, 1>(call, {panel, 1, t});
    }
    if (t < call.num_tokens) run_tile<Decoder, 1, 2>(call, {panel, 0, t});
  }
}

void put(KernelTable& table, PanelKind kind, PanelDotFn dot) noexcept {
  const auto at = static_cast<std::size_t>(kind);
  table.exact_dot[at] = dot;
  if (table.fast_form[at] == ActivationForm::kF32) table.fast_dot[at] = dot;
}

}  // namespace

void install_exact_dot(KernelTable& table) noexcept {
  put(table, PanelKind::kF32, exact_dot<F32Decoder>);
  put(table, PanelKind::kF16, exact_dot<F16Decoder>);
  put(table, PanelKind::kBf16, exact_dot<Bf16Decoder>);
  put(table, PanelKind::kE4m3, exact_dot<E4m3Decoder>);
  put(table, PanelKind::kI8, exact_dot<I8Decoder>);
  put(table, PanelKind::kMxfp4, exact_dot<Mxfp4Decoder>);
  put(table, PanelKind::kNvfp4, exact_dot<Nvfp4Decoder>);
}

}  // namespace lode::kernels::avx2
