#include "lode/kernels/avx512/vectors.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/activation.h"

// The laws are scalar/vectors.cc and scalar/pack_activation.cc. A register is the 16 chains of a
// dot; the rest at the end is masked, so that lanes without a number keep their sum.

namespace lode::kernels::avx512 {
namespace {

constexpr std::size_t kLanes = 16;

LODE_KERNEL_INLINE __mmask16 first_lanes(std::size_t n) noexcept {
  return static_cast<__mmask16>((1u << n) - 1u);
}

LODE_KERNEL_INLINE float join(__m512 chains) noexcept {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(chains), _mm512_extractf32x8_ps(chains, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

struct Floats {
  const float* at;
  LODE_KERNEL_INLINE __m512 load(std::size_t i) const noexcept { return _mm512_loadu_ps(at + i); }
  LODE_KERNEL_INLINE __m512 load(std::size_t i, __mmask16 lanes) const noexcept {
    return _mm512_maskz_loadu_ps(lanes, at + i);
  }
};

struct Halves {
  const std::uint16_t* at;
  LODE_KERNEL_INLINE __m512 load(std::size_t i) const noexcept {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + i)));
  }
  LODE_KERNEL_INLINE __m512 load(std::size_t i, __mmask16 lanes) const noexcept {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, at + i));
  }
};

template <class B>
LODE_KERNEL_INLINE float dot_of(Floats a, B b, std::size_t n) noexcept {
  __m512 chains = _mm512_setzero_ps();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) chains = _mm512_fmadd_ps(a.load(i), b.load(i), chains);
  const __mmask16 rest = first_lanes(n - i);
  chains = _mm512_mask3_fmadd_ps(a.load(i, rest), b.load(i, rest), chains, rest);
  return join(chains);
}

template <class X>
LODE_KERNEL_INLINE void add_scaled_of(float scale, X x, std::size_t n, float* out) noexcept {
  const __m512 factor = _mm512_set1_ps(scale);
  const Floats old{out};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm512_storeu_ps(out + i, _mm512_fmadd_ps(factor, x.load(i), old.load(i)));
  }
  const __mmask16 rest = first_lanes(n - i);
  _mm512_mask_storeu_ps(out + i, rest, _mm512_fmadd_ps(factor, x.load(i, rest), old.load(i, rest)));
}

float dot(const float* a, const float* b, std::size_t n) noexcept {
  return dot_of(Floats{a}, Floats{b}, n);
}
float dot_f16(const float* a, const std::uint16_t* b, std::size_t n) noexcept {
  return dot_of(Floats{a}, Halves{b}, n);
}
void add_scaled(float scale, const float* x, std::size_t n, float* out) noexcept {
  add_scaled_of(scale, Floats{x}, n, out);
}
void add_scaled_f16(float scale, const std::uint16_t* x, std::size_t n, float* out) noexcept {
  add_scaled_of(scale, Halves{x}, n, out);
}

void to_f16(const float* x, std::size_t n, std::uint16_t* out) noexcept {
  constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_cvtps_ph(_mm512_loadu_ps(x + i), kNearestEven));
  }
  const __mmask16 rest = first_lanes(n - i);
  _mm256_mask_storeu_epi16(out + i, rest,
                           _mm512_cvtps_ph(_mm512_maskz_loadu_ps(rest, x + i), kNearestEven));
}

void rms_norm(const float* x, const float* weight, float eps, std::size_t n, float* out) noexcept {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const __m512 scale = _mm512_set1_ps(1.0F / __builtin_sqrtf(mean + eps));
  for (std::size_t i = 0; i < n; i += kLanes) {
    const __mmask16 lanes = n - i < kLanes ? first_lanes(n - i) : __mmask16{0xFFFF};
    const __m512 scaled = _mm512_mul_ps(Floats{x}.load(i, lanes), scale);
    _mm512_mask_storeu_ps(out + i, lanes, _mm512_mul_ps(scaled, Floats{weight}.load(i, lanes)));
  }
}

/// s of a block of 32, or its special values 0 and NaN.
LODE_KERNEL_INLINE float block_scale(__m512 a, __m512 b) noexcept {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512i bits_a = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
  const __m512i bits_b = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
  const int max = _mm512_reduce_max_epi32(_mm512_max_epi32(bits_a, bits_b));
  if (max >= 0x7F800000) return __builtin_nanf("");
  const float scale = __builtin_bit_cast(float, max) / 127.0F;
  return scale >= __FLT_MIN__ ? scale : 0.0F;
}

LODE_KERNEL_INLINE __m128i codes_of(__m512 x, float scale) noexcept {
  const __m512 steps = _mm512_div_ps(x, _mm512_set1_ps(scale));
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(steps));  // to even, as MXCSR is left
}

LODE_KERNEL_INLINE std::int32_t sum_of(__m128i codes) noexcept {
  const __m128i sums = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), codes);
  const __m128i pairs = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xB1)));
}

LODE_KERNEL_INLINE PackedBlock pack_block(ActivationForm form, __m512 a, __m512 b) noexcept {
  PackedBlock block{};
  block.scale = block_scale(a, b);
  if (!(block.scale > 0.0F)) return block;
  const __m128i codes[2] = {codes_of(a, block.scale), codes_of(b, block.scale)};
  const __m128i order = form == ActivationForm::kI8Fp4
                            ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                            : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 2
  for (std::size_t half = 0; half < 2; ++half) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.codes + 16 * half),
                     _mm_shuffle_epi8(codes[half], order));
    block.corrections[half] = -code_bias(form) * sum_of(codes[half]);
  }
  return block;
}

void pack_activation(ActivationForm form, const float* x, std::size_t k, std::byte* out) noexcept {
  const std::size_t bytes = activation_row_bytes(form, k);
  if (form == ActivationForm::kF32) {
    std::memcpy(out, x, 4 * k);
    std::memset(out + 4 * k, 0, bytes - 4 * k);
    return;
  }
  std::byte* at = out;
  for (std::size_t i = 0; i < k; i += kActivationBlock) {
    const std::size_t n = k - i < kActivationBlock ? k - i : kActivationBlock;
    const std::uint32_t lanes = n == kActivationBlock ? ~0u : (1u << n) - 1u;
    const __m512 low = Floats{x}.load(i, static_cast<__mmask16>(lanes));
    const __m512 high = Floats{x}.load(i + kLanes, static_cast<__mmask16>(lanes >> 16));
    const PackedBlock block = pack_block(form, low, high);
    std::memcpy(at, &block, sizeof block);
    at += sizeof block;
  }
  std::memset(at, 0, static_cast<std::size_t>(out + bytes - at));
}

}  // namespace

void install_vectors(KernelTable& table) noexcept {
  table.pack_activation = pack_activation;
  table.dot = dot;
  table.add_scaled = add_scaled;
  table.dot_f16 = dot_f16;
  table.add_scaled_f16 = add_scaled_f16;
  table.to_f16 = to_f16;
  table.rms_norm = rms_norm;
}

}  // namespace lode::kernels::avx512
