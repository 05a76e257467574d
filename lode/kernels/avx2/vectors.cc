#include "lode/kernels/avx2/vectors.h"

#include <immintrin.h>

#include <cstring>

#include "lode/kernels/activation.h"

// The laws are scalar/vectors.cc and scalar/pack_activation.cc. Two registers are the 16 chains of
// a dot; what is left at the end goes one number at a time to its chain.

namespace lode::kernels::avx2 {
namespace {

constexpr std::size_t kLanes = 8;
constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

struct Floats {
  const float* at;
  LODE_KERNEL_INLINE __m256 load(std::size_t i) const noexcept { return _mm256_loadu_ps(at + i); }
  LODE_KERNEL_INLINE float one(std::size_t i) const noexcept { return at[i]; }
};

struct Halves {
  const std::uint16_t* at;
  LODE_KERNEL_INLINE __m256 load(std::size_t i) const noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + i)));
  }
  LODE_KERNEL_INLINE float one(std::size_t i) const noexcept {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(at[i])));
  }
};

template <class B>
LODE_KERNEL_INLINE float dot_of(Floats a, B b, std::size_t n) noexcept {
  __m256 low = _mm256_setzero_ps(), high = low;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    low = _mm256_fmadd_ps(a.load(i), b.load(i), low);
    high = _mm256_fmadd_ps(a.load(i + kLanes), b.load(i + kLanes), high);
  }
  alignas(32) float chains[2 * kLanes];
  _mm256_store_ps(chains, low);
  _mm256_store_ps(chains + kLanes, high);
  for (std::size_t lane = 0; i < n; ++i, ++lane) {
    chains[lane] = __builtin_fmaf(a.one(i), b.one(i), chains[lane]);
  }
  const __m256 eight = _mm256_add_ps(_mm256_load_ps(chains), _mm256_load_ps(chains + kLanes));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

template <class X>
LODE_KERNEL_INLINE void add_scaled_of(float scale, X x, std::size_t n, float* out) noexcept {
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_ps(out + i, _mm256_fmadd_ps(factor, x.load(i), _mm256_loadu_ps(out + i)));
  }
  for (; i < n; ++i) out[i] = __builtin_fmaf(scale, x.one(i), out[i]);
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
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), kNearestEven));
  }
  for (; i < n; ++i) {
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(x[i]), kNearestEven);
    out[i] = static_cast<std::uint16_t>(_mm_cvtsi128_si32(half));
  }
}

void rms_norm(const float* x, const float* weight, float eps, std::size_t n, float* out) noexcept {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const float scale = 1.0F / __builtin_sqrtf(mean + eps);
  for (std::size_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * weight[i];
}

/// The block's 32 numbers, zeros where there are less.
struct Numbers {
  __m256 of[4];
};

LODE_KERNEL_INLINE Numbers load_numbers(const float* x, std::size_t n) noexcept {
  float padded[kActivationBlock] = {};
  if (n < kActivationBlock) {
    std::memcpy(padded, x, 4 * n);
    x = padded;
  }
  return {{_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
           _mm256_loadu_ps(x + 24)}};
}

/// s of a block of 32, or its special values 0 and NaN.
LODE_KERNEL_INLINE float block_scale(const Numbers& x) noexcept {
  __m256i max = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    const __m256i bits =
        _mm256_and_si256(_mm256_castps_si256(x.of[i]), _mm256_set1_epi32(0x7FFFFFFF));
    max = _mm256_max_epi32(max, bits);
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  const int largest = _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
  if (largest >= 0x7F800000) return __builtin_nanf("");
  const float scale = __builtin_bit_cast(float, largest) / 127.0F;
  return scale >= __FLT_MIN__ ? scale : 0.0F;
}

LODE_KERNEL_INLINE __m128i codes_of(__m256 a, __m256 b, float scale) noexcept {
  const __m256 step = _mm256_set1_ps(scale);
  const __m256i low = _mm256_cvtps_epi32(_mm256_div_ps(a, step));
  const __m256i high = _mm256_cvtps_epi32(_mm256_div_ps(b, step));
  // Packing goes by halves of a register: words come as a0-3 b0-3 a4-7 b4-7.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

LODE_KERNEL_INLINE std::int32_t sum_of(__m128i codes) noexcept {
  const __m128i words = _mm_maddubs_epi16(_mm_set1_epi8(1), codes);
  const __m128i sums = _mm_madd_epi16(words, _mm_set1_epi16(1));
  const __m128i pairs = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xB1)));
}

LODE_KERNEL_INLINE PackedBlock pack_block(ActivationForm form, const Numbers& x) noexcept {
  PackedBlock block{};
  block.scale = block_scale(x);
  if (!(block.scale > 0.0F)) return block;
  const __m128i order = form == ActivationForm::kI8Fp4
                            ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                            : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 2
  for (std::size_t half = 0; half < 2; ++half) {
    const __m128i codes = codes_of(x.of[2 * half], x.of[2 * half + 1], block.scale);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block.codes + 16 * half),
                     _mm_shuffle_epi8(codes, order));
    block.corrections[half] = -code_bias(form) * sum_of(codes);
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
    const PackedBlock block = pack_block(form, load_numbers(x + i, n));
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

}  // namespace lode::kernels::avx2
