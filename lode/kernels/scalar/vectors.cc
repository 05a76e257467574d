#include "lode/kernels/scalar/vectors.h"

#include <cmath>

#include "lode/formats/f16.h"

namespace lode::kernels::scalar {
namespace {

struct SixteenChains {
  float of[16] = {};
  float sum() noexcept {
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) of[i] += of[i + half];
    }
    return of[0];
  }
};

}  // namespace

float dot(const float* a, const float* b, std::size_t n) noexcept {
  SixteenChains chains;
  for (std::size_t i = 0; i < n; ++i) chains.of[i % 16] = std::fma(a[i], b[i], chains.of[i % 16]);
  return chains.sum();
}

void add_scaled(float scale, const float* x, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = std::fma(scale, x[i], out[i]);
}

float dot_f16(const float* a, const std::uint16_t* b, std::size_t n) noexcept {
  SixteenChains chains;
  for (std::size_t i = 0; i < n; ++i) {
    chains.of[i % 16] = std::fma(a[i], formats::decode_f16(b[i]), chains.of[i % 16]);
  }
  return chains.sum();
}

void add_scaled_f16(float scale, const std::uint16_t* x, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = std::fma(scale, formats::decode_f16(x[i]), out[i]);
  }
}

void to_f16(const float* x, std::size_t n, std::uint16_t* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = formats::encode_f16(x[i]);
}

void rms_norm(const float* x, const float* weight, float eps, std::size_t n, float* out) noexcept {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const float scale = 1.0F / std::sqrt(mean + eps);
  for (std::size_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * weight[i];
}

}  // namespace lode::kernels::scalar
