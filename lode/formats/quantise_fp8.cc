#include <bit>
#include <cmath>

#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/quantise_parts.h"

namespace lode::formats {
namespace {

BlockScale in_f32(float stored, float factor) noexcept {
  return {std::bit_cast<std::uint32_t>(stored), factor};
}

std::uint8_t quotient(float value, float scale) noexcept { return encode_e4m3(value / scale); }
std::uint8_t product(float value, float factor) noexcept { return encode_e4m3(value * factor); }

/// With BF16 weights the quotient is rounded to BF16 before the cast.
auto rounded_quotient(const QuantiseInput& input) {
  return [bf16 = input.weights == Format::kBf16](float value, float scale) {
    const float exact = value / scale;
    return encode_e4m3(bf16 ? round_to_bf16(exact) : exact);
  };
}

BlockScale modelopt_scale(float amax) noexcept {
  const float scale = amax > 0.0F ? amax / kE4m3Max : 1.0F;
  return in_f32(scale, scale);
}

/// The scale in the format of the weights; the epsilon of that format where it would be 0.
auto compressed_tensors_scale(const QuantiseInput& input, float largest) {
  return [&input, largest](float amax) {
    const bool bf16 = input.weights == Format::kBf16;
    const float wanted = rounded(input, amax / largest);
    const float scale = wanted > 0.0F ? wanted : std::ldexp(1.0F, bf16 ? -7 : -23);
    return bf16 ? BlockScale{encode_bf16(scale), scale} : in_f32(scale, scale);
  };
}

std::uint8_t int8_code(float quotient_value) noexcept {
  const float clamped = std::fmin(std::fmax(quotient_value, -128.0F), 127.0F);
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(clamped)));
}

/// What transformers multiplies weights with: 448 times the reciprocal, each step rounded.
float transformers_factor(float amax) noexcept {
  return amax > 0.0F ? kE4m3Max * (1.0F / amax) : 1.0F;
}

BlockScale transformers_scale(float amax) noexcept {
  const float factor = transformers_factor(amax);
  return in_f32(1.0F / factor, factor);
}

BlockScale transformers_ue8m0_scale(float amax) noexcept {
  const float wanted = 1.0F / transformers_factor(amax);
  const auto byte = static_cast<std::uint8_t>(std::ceil(std::log2(wanted)) + 127.0F);
  return {byte, decode_e8m0(byte)};
}

}  // namespace

void quantise_fp8(const QuantiseInput& input, Quantised& out) {
  switch (input.rule) {
    case Rule::kModeloptFp8Tensor:
      return quantise_blocks(input, modelopt_scale, rounded_quotient(input), out);
    case Rule::kModeloptFp8Channel:
      return quantise_blocks(input, modelopt_scale, quotient, out);
    case Rule::kTransformersFp8Block:
      return quantise_blocks(input, transformers_scale, product, out);
    case Rule::kTransformersFp8BlockUe8m0:
      return quantise_blocks(input, transformers_ue8m0_scale, quotient, out);
    case Rule::kCtInt8Channel: {
      const auto code = [&input](float value, float scale) {
        return int8_code(rounded(input, value / scale));
      };
      return quantise_blocks(input, compressed_tensors_scale(input, 127.5F), code, out);
    }
    default:
      return quantise_blocks(input, compressed_tensors_scale(input, kE4m3Max),
                             rounded_quotient(input), out);
  }
}

}  // namespace lode::formats
