#include <algorithm>
#include <cmath>

#include "lode/formats/block_scale.h"
#include "lode/formats/quantise_parts.h"

namespace lode::formats {
namespace {

constexpr float kE4m3Least = 0.001953125F;  // 2^-9
constexpr std::uint8_t kE4m3One = 0x38;
constexpr std::uint8_t kE4m3Eighth = 0x20;

/// Both producers take the sign from w < 0: tiny negatives become -0, a -0 becomes +0.
std::uint8_t signed_code(float value, float multiplier) noexcept {
  const std::uint8_t magnitude = encode_e2m1(std::fabs(value) / multiplier);
  return static_cast<std::uint8_t>(magnitude | (value < 0.0F ? 8U : 0U));
}

void modelopt(const QuantiseInput& input, float tensor_range, Quantised& out) {
  const float second = *input.amax > 0.0F ? *input.amax / tensor_range : 1.0F;
  out.tensor_scale = second;
  const auto scale = [second](float amax) {
    const float wanted = amax / (6.0F * second);
    const std::uint8_t code =
        wanted == 0.0F ? kE4m3One : encode_e4m3(std::clamp(wanted, kE4m3Least, kE4m3Max));
    return BlockScale{code, nvfp4_multiplier(code, second)};
  };
  quantise_blocks(input, scale, signed_code, out);
}

/// compressed-tensors stores the reciprocal, rounded at each step to the format of the weights.
void compressed_tensors(const QuantiseInput& input, Quantised& out) {
  const float divisor =
      *input.amax > 0.0F ? rounded(input, 2688.0F * rounded(input, 1.0F / *input.amax)) : 1.0F;
  out.tensor_scale = divisor;
  const auto scale = [&input, divisor](float amax) {
    const std::uint8_t wanted = encode_e4m3(divisor * rounded(input, amax / 6.0F));
    const std::uint8_t code = wanted == 0 ? kE4m3Eighth : wanted;
    return BlockScale{code, nvfp4_divided_multiplier(code, divisor)};
  };
  quantise_blocks(input, scale, signed_code, out);
}

}  // namespace

void quantise_nvfp4(const QuantiseInput& input, Quantised& out) {
  if (input.rule == Rule::kCtNvfp4) return compressed_tensors(input, out);
  const bool w4a8 = input.rule == Rule::kModeloptW4a8Nvfp4Fp8;
  modelopt(input, w4a8 ? 448.0F : 2688.0F, out);
}

}  // namespace lode::formats
