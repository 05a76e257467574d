#include "lode/kernels/avx512/exact_dot.h"

#include <cstring>

#include "lode/kernels/activation.h"
#include "lode/kernels/avx512/decode.h"

// The law is scalar/exact_dot.cc: four chains a row and token. 16 rows are the lanes, so a chain
// is a register; weights are decoded once for the tokens of a tile, eight k at a time.

namespace lode::kernels::avx512 {
namespace {

constexpr std::size_t kStep = 8;

LODE_KERNEL_INLINE __m512 apply(const MatrixScale& scale, __m512 scales) noexcept {
  const __m512 value = _mm512_set1_ps(scale.value);
  if (scale.rule == formats::TensorScale::kMultiplier) return _mm512_mul_ps(scales, value);
  if (scale.rule == formats::TensorScale::kDivisor) return _mm512_div_ps(scales, value);
  return scales;
}

template <class Decoder, std::size_t kTokens, Prefetch kPrefetch>
class Tile {
 public:
  LODE_KERNEL_INLINE Tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept
      : call_(call), panel_(call.panels + panel * call.panel_stride_bytes) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      x_[t] = reinterpret_cast<const float*>(activation_row(call, first + t));
      y_[t] = call.y + (first + t) * call.y_stride + panel * kPanelRows;
    }
  }

  LODE_KERNEL_INLINE void run() noexcept {
    Chains chains;
#pragma GCC unroll 32
    for (std::size_t i = 0; i < 4 * kTokens; ++i) chains[i / 4][i % 4] = _mm512_setzero_ps();
    const std::size_t block_bytes = call_.shape.super_block_bytes();
    const std::byte* codes = panel_;
    std::size_t begin = 0;
    for (; begin + kSuperBlockK <= call_.k; begin += kSuperBlockK) {
      constexpr std::size_t kCodeBytes = kSuperBlockK / Decoder::kPerLine * kLineBytes;
      add_groups({codes, codes + kCodeBytes, kSuperBlockK}, begin, chains);
      prefetch<kPrefetch>(codes + kCodeBytes, block_bytes - kCodeBytes);
      codes += block_bytes;
    }
    if (begin < call_.k) tail(begin, chains);
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      const __m512 even = _mm512_add_ps(chains[t][0], chains[t][1]);
      _mm512_storeu_ps(y_[t], _mm512_add_ps(even, _mm512_add_ps(chains[t][2], chains[t][3])));
    }
  }

 private:
  using Chains = __m512[kTokens][4];
  static constexpr std::size_t kStepBytes = kStep / Decoder::kPerLine * kLineBytes;

  LODE_KERNEL_INLINE __m512 multiplier(const std::byte* scales, std::size_t group) const noexcept {
    if constexpr (Decoder::kScaled) return apply(call_.scale, decoder_.scales(scales, group));
    return _mm512_setzero_ps();  // not used
  }

  /// The whole steps of a super-block.
  LODE_KERNEL_INLINE void add_groups(const SuperBlock& block, std::size_t begin,
                                     Chains& chains) const noexcept {
    const std::byte* lines = block.codes;
    const std::size_t group_k = Decoder::kScaled ? call_.shape.group_k : kSuperBlockK;
    const std::size_t whole = block.k / kStep * kStep;
    for (std::size_t group = 0, k = 0; k < whole; ++group) {
      const __m512 scale = multiplier(block.scales, group);
      const std::size_t end = k + group_k < whole ? k + group_k : whole;
      for (; k < end; k += kStep) {
        prefetch<kPrefetch>(lines, kStepBytes);
        add_step(lines, scale, begin + k, chains);
        lines += kStepBytes;
      }
    }
  }

  LODE_KERNEL_INLINE void add_step(const std::byte* lines, __m512 scale, std::size_t k,
                                   Chains& chains, std::size_t n = kStep) const noexcept {
#pragma GCC unroll 8
    for (std::size_t first = 0; first < kStep; first += Decoder::kPerLine) {
      __m512 weights[Decoder::kPerLine];
      decoder_.decode(lines + first / Decoder::kPerLine * kLineBytes, weights);
#pragma GCC unroll 8
      for (std::size_t i = 0; i < Decoder::kPerLine; ++i) {
        if (first + i < n) add(weights[i], scale, k, first + i, chains);
      }
    }
  }

  LODE_KERNEL_INLINE void add(__m512 weight, __m512 scale, std::size_t k, std::size_t i,
                              Chains& chains) const noexcept {
    if constexpr (Decoder::kScaled) weight = _mm512_mul_ps(weight, scale);
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      const __m512 x = _mm512_set1_ps(x_[t][k + i]);
      chains[t][i % 4] = _mm512_fmadd_ps(weight, x, chains[t][i % 4]);
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
    add_step(padded, multiplier(block.scales, group), begin + k, chains, left);
  }

  const PanelDot& call_;
  const std::byte* panel_;
  Decoder decoder_;
  const float* x_[kTokens];
  float* y_[kTokens];
};

template <class Decoder, std::size_t kTokens, Prefetch kPrefetch = Prefetch::kYes>
void run_tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept {
  Tile<Decoder, kTokens, kPrefetch>(call, panel, first).run();
}

template <class Decoder>
void run_panel(const PanelDot& call, std::size_t panel) noexcept {
  std::size_t t = 0;
  for (; t + 4 <= call.num_tokens; t += 4) run_tile<Decoder, 4>(call, panel, t);
  if (t + 2 <= call.num_tokens) run_tile<Decoder, 2>(call, panel, t), t += 2;
  if (t < call.num_tokens) run_tile<Decoder, 1>(call, panel, t);
}

template <class Decoder, Prefetch kPrefetch>
void exact_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    if (call.num_tokens == 1) {
      run_tile<Decoder, 1, kPrefetch>(call, panel, 0);
    } else {
      run_panel<Decoder>(call, panel);
    }
  }
}

void put(KernelTable& table, PanelKind kind, PanelDotFn dot) noexcept {
  const auto at = static_cast<std::size_t>(kind);
  table.exact_dot[at] = dot;
  if (table.fast_form[at] == ActivationForm::kF32) table.fast_dot[at] = dot;
}

template <Prefetch kPrefetch>
void install_all(KernelTable& table) noexcept {
  put(table, PanelKind::kF32, exact_dot<F32Decoder, kPrefetch>);
  put(table, PanelKind::kF16, exact_dot<F16Decoder, kPrefetch>);
  put(table, PanelKind::kBf16, exact_dot<Bf16Decoder, kPrefetch>);
  put(table, PanelKind::kE4m3, exact_dot<E4m3Decoder, kPrefetch>);
  put(table, PanelKind::kI8, exact_dot<I8Decoder, kPrefetch>);
  put(table, PanelKind::kMxfp4, exact_dot<Mxfp4Decoder, kPrefetch>);
  put(table, PanelKind::kNvfp4, exact_dot<Nvfp4Decoder, kPrefetch>);
}

}  // namespace

void install_exact_dot(KernelTable& table, Prefetch prefetch) noexcept {
  if (prefetch == Prefetch::kYes) {
    install_all<Prefetch::kYes>(table);
  } else {
    install_all<Prefetch::kNo>(table);
  }
}

}  // namespace lode::kernels::avx512
