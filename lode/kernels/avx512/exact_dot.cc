#include "lode/kernels/avx512/exact_dot.h"

#include <cstring>

#include "lode/kernels/activation.h"
#include "lode/kernels/avx512/decode.h"

// The law is scalar/exact_dot.cc: four chains a row and token. 16 rows are the lanes, so a chain
// is a register; weights are decoded once for the tokens of a tile, eight k at a time. The fast
// kernel of E4M3 is the same but for where the scales come in (scalar/fast_dot.cc).

namespace lode::kernels::avx512 {
namespace {

constexpr std::size_t kStep = 8;

LODE_KERNEL_INLINE __m512 apply(const MatrixScale& scale, __m512 scales) noexcept {
  const __m512 value = _mm512_set1_ps(scale.value);
  if (scale.rule == formats::TensorScale::kMultiplier) return _mm512_mul_ps(scales, value);
  if (scale.rule == formats::TensorScale::kDivisor) return _mm512_div_ps(scales, value);
  return scales;
}

/// Whether a group's scale multiplies its weights (the law of exact_dot) or its sum.
enum class Scales : bool { kOnWeights, kOnSums };

template <class Decoder, std::size_t kTokens, Prefetch kPrefetch, Scales kScales>
class Tile {
  static constexpr bool kGrouped = kScales == Scales::kOnSums;

 public:
  LODE_KERNEL_INLINE Tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept
      : call_(call), panel_(call.panels + panel * call.panel_stride_bytes) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      x_[t] = reinterpret_cast<const float*>(activation_row(call, first + t));
      y_[t] = call.y + (first + t) * call.y_stride + panel * kPanelRows;
    }
  }

  LODE_KERNEL_INLINE void run() noexcept {
    Sums sums;
#pragma GCC unroll 32
    for (std::size_t t = 0; t < kTokens; ++t) {
      sums.total[t] = _mm512_setzero_ps();
      clear(sums.chains[t]);
    }
    const std::size_t block_bytes = call_.shape.super_block_bytes();
    const std::byte* codes = panel_;
    std::size_t begin = 0;
    for (; begin + kSuperBlockK <= call_.k; begin += kSuperBlockK) {
      constexpr std::size_t kCodeBytes = kSuperBlockK / Decoder::kPerLine * kLineBytes;
      add_groups<false>({codes, codes + kCodeBytes, kSuperBlockK}, begin, sums);
      prefetch<kPrefetch>(codes + kCodeBytes, block_bytes - kCodeBytes);
      codes += block_bytes;
    }
    if (begin < call_.k) tail(begin, sums);
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      const __m512 sum = kGrouped ? apply(call_.scale, sums.total[t]) : join(sums.chains[t]);
      _mm512_storeu_ps(y_[t], sum);
    }
  }

 private:
  static constexpr std::size_t kStepBytes = kStep / Decoder::kPerLine * kLineBytes;
  using Chains = __m512[4];
  struct Sums {
    Chains chains[kTokens];
    __m512 total[kTokens];  // of the groups that are done, if kGrouped
  };

  LODE_KERNEL_INLINE static void clear(Chains& chains) noexcept {
#pragma GCC unroll 4
    for (std::size_t c = 0; c < 4; ++c) chains[c] = _mm512_setzero_ps();
  }
  LODE_KERNEL_INLINE static __m512 join(const Chains& chains) noexcept {
    return _mm512_add_ps(_mm512_add_ps(chains[0], chains[1]), _mm512_add_ps(chains[2], chains[3]));
  }

  LODE_KERNEL_INLINE __m512 multiplier(const std::byte* scales, std::size_t group) const noexcept {
    if constexpr (kGrouped) return decoder_.scales(scales, group);
    if constexpr (Decoder::kScaled) return apply(call_.scale, decoder_.scales(scales, group));
    return _mm512_setzero_ps();  // not used
  }

  template <bool kMayBeShort>
  LODE_KERNEL_INLINE void add_groups(const SuperBlock& block, std::size_t begin,
                                     Sums& sums) const noexcept {
    const std::byte* lines = block.codes;
    const std::size_t group_k = Decoder::kScaled ? call_.shape.group_k : kSuperBlockK;
    for (std::size_t group = 0, k = 0; k < block.k; ++group) {
      const __m512 scale = multiplier(block.scales, group);
      const std::size_t end = k + group_k < block.k ? k + group_k : block.k;
      for (; k + kStep <= end; k += kStep) {
        prefetch<kPrefetch>(lines, kStepBytes);
        add_step(lines, scale, begin + k, sums);
        lines += kStepBytes;
      }
      if (kMayBeShort && k < end) {
        add_short_step(lines, scale, begin + k, end - k, sums);
        k = end;
      }
      if constexpr (kGrouped) close_group(scale, sums);
    }
  }

  LODE_KERNEL_INLINE void close_group(__m512 scale, Sums& sums) const noexcept {
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      sums.total[t] = _mm512_fmadd_ps(join(sums.chains[t]), scale, sums.total[t]);
      clear(sums.chains[t]);
    }
  }

  LODE_KERNEL_INLINE void add_step(const std::byte* lines, __m512 scale, std::size_t k, Sums& sums,
                                   std::size_t n = kStep) const noexcept {
#pragma GCC unroll 8
    for (std::size_t first = 0; first < kStep; first += Decoder::kPerLine) {
      __m512 weights[Decoder::kPerLine];
      decoder_.decode(lines + first / Decoder::kPerLine * kLineBytes, weights);
#pragma GCC unroll 8
      for (std::size_t i = 0; i < Decoder::kPerLine; ++i) {
        if (first + i < n) add(weights[i], scale, k, first + i, sums);
      }
    }
  }

  LODE_KERNEL_INLINE void add(__m512 weight, __m512 scale, std::size_t k, std::size_t i,
                              Sums& sums) const noexcept {
    if constexpr (Decoder::kScaled && !kGrouped) weight = _mm512_mul_ps(weight, scale);
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      __m512& chain = sums.chains[t][i % 4];
      chain = _mm512_fmadd_ps(weight, _mm512_set1_ps(x_[t][k + i]), chain);
    }
  }

  /// n < kStep numbers: lines that do not exist are not read.
  LODE_KERNEL_INLINE void add_short_step(const std::byte* lines, __m512 scale, std::size_t k,
                                         std::size_t n, Sums& sums) const noexcept {
    alignas(kLineBytes) std::byte padded[kStepBytes] = {};
    std::memcpy(padded, lines, call_.shape.code_lines(n) * kLineBytes);
    add_step(padded, scale, k, sums, n);
  }

  void tail(std::size_t begin, Sums& sums) const noexcept {
    add_groups<true>(super_block(call_.shape, panel_, begin, call_.k), begin, sums);
  }

  const PanelDot& call_;
  const std::byte* panel_;
  Decoder decoder_;
  const float* x_[kTokens];
  float* y_[kTokens];
};

template <class Decoder, std::size_t kTokens, Prefetch kPrefetch, Scales kScales>
void run_tile(const PanelDot& call, std::size_t panel, std::size_t first) noexcept {
  Tile<Decoder, kTokens, kPrefetch, kScales>(call, panel, first).run();
}

template <class Decoder, Scales kScales>
void run_panel(const PanelDot& call, std::size_t panel) noexcept {
  constexpr Prefetch kYes = Prefetch::kYes;
  std::size_t t = 0;
  for (; t + 4 <= call.num_tokens; t += 4) run_tile<Decoder, 4, kYes, kScales>(call, panel, t);
  if (t + 2 <= call.num_tokens) run_tile<Decoder, 2, kYes, kScales>(call, panel, t), t += 2;
  if (t < call.num_tokens) run_tile<Decoder, 1, kYes, kScales>(call, panel, t);
}

template <class Decoder, Prefetch kPrefetch, Scales kScales = Scales::kOnWeights>
void dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    if (call.num_tokens == 1) {
      run_tile<Decoder, 1, kPrefetch, kScales>(call, panel, 0);
    } else {
      run_panel<Decoder, kScales>(call, panel);
    }
  }
}

void put(KernelTable& table, PanelKind kind, PanelDotFn exact, PanelDotFn fast) noexcept {
  const auto at = static_cast<std::size_t>(kind);
  table.exact_dot[at] = exact;
  if (fast != nullptr) table.fast_dot[at] = fast;
}

template <class Decoder, Prefetch kPrefetch>
void put_plain(KernelTable& table, PanelKind kind) noexcept {
  put(table, kind, dot<Decoder, kPrefetch>, dot<Decoder, kPrefetch>);
}

template <Prefetch kPrefetch>
void install_all(KernelTable& table) noexcept {
  put_plain<F32Decoder, kPrefetch>(table, PanelKind::kF32);
  put_plain<F16Decoder, kPrefetch>(table, PanelKind::kF16);
  put_plain<Bf16Decoder, kPrefetch>(table, PanelKind::kBf16);
  put(table, PanelKind::kE4m3, dot<E4m3Decoder, kPrefetch>,
      dot<E4m3Decoder, kPrefetch, Scales::kOnSums>);
  put(table, PanelKind::kI8, dot<I8Decoder, kPrefetch>, nullptr);
  put(table, PanelKind::kMxfp4, dot<Mxfp4Decoder, kPrefetch>, nullptr);
  put(table, PanelKind::kNvfp4, dot<Nvfp4Decoder, kPrefetch>, nullptr);
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
