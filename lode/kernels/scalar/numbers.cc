#include "lode/kernels/scalar/numbers.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "lode/formats/bf16.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/e5m2.h"
#include "lode/formats/f16.h"

namespace lode::kernels::scalar {
namespace {

template <class Code, class Decode>
void widen_each(const std::byte* source, std::size_t step_bytes, std::size_t n, float* out,
                Decode decode) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    Code code;
    std::memcpy(&code, source + i * step_bytes, sizeof code);
    out[i] = decode(code);
  }
}

}  // namespace

void widen(formats::Format from, const std::byte* source, std::size_t step_bytes, std::size_t n,
           float* out) noexcept {
  switch (from) {
    case formats::Format::kF16:
      return widen_each<std::uint16_t>(source, step_bytes, n, out,
                                       [](auto code) { return formats::decode_f16(code); });
    case formats::Format::kBf16:
      return widen_each<std::uint16_t>(source, step_bytes, n, out,
                                       [](auto code) { return formats::decode_bf16(code); });
    case formats::Format::kE4m3:
      return widen_each<std::uint8_t>(source, step_bytes, n, out,
                                      [](auto code) { return formats::decode_e4m3(code); });
    case formats::Format::kE5m2:
      return widen_each<std::uint8_t>(source, step_bytes, n, out,
                                      [](auto code) { return formats::decode_e5m2(code); });
    default:  // kF32
      return widen_each<float>(source, step_bytes, n, out, [](auto number) { return number; });
  }
}

float quantise_i8(const float* x, float factor, std::size_t n, std::int8_t* codes) noexcept {
  // Adding and taking away 1.5 * 2^23 rounds to nearest even: exact for |x| < 2^22.
  constexpr float kRoundingMagic = 12582912.0F;
  std::memset(codes, 0, kSuperBlockK);
  float largest = 0.0F;
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i] * factor);
    finite &= magnitude <= std::numeric_limits<float>::max();
    largest = magnitude > largest ? magnitude : largest;
  }
  if (!finite) return __builtin_nanf("");
  const float scale = largest / 127.0F;
  if (scale == 0.0F) return scale;  // below the smallest number
  for (std::size_t i = 0; i < n; ++i) {
    // A subnormal scale is so coarse that the quotient may be beyond 127.
    float steps = x[i] * factor / scale;
    steps = steps > 127.0F ? 127.0F : steps;
    steps = steps < -127.0F ? -127.0F : steps;
    codes[i] = static_cast<std::int8_t>((steps + kRoundingMagic) - kRoundingMagic);
  }
  return scale;
}

}  // namespace lode::kernels::scalar
