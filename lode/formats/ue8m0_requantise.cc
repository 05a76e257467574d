#include "lode/formats/ue8m0_requantise.h"

#include <algorithm>
#include <cmath>

namespace lode::formats {
namespace {

constexpr float kLeastAmax = 1e-4F;

float power_of_two_scale(float amax) noexcept {
  if (std::isnan(amax)) return amax;
  return std::exp2(std::ceil(std::log2(std::max(amax, kLeastAmax) / kE4m3Max)));
}

}  // namespace

std::uint8_t largest_code(std::span<const std::byte> codes) noexcept {
  std::uint8_t largest = 0;
  for (const std::byte code : codes) {
    largest = std::max(largest, std::to_integer<std::uint8_t>(code & std::byte{0x7F}));
  }
  return largest;
}

Ue8m0Block requantise_ue8m0(std::uint8_t largest, float scale) noexcept {
  // A product with one factor rises with the other, rounded or not: no other code is larger.
  const float amax = std::fabs(decode_e4m3(largest) * scale);
  Ue8m0Block block{.map = {}, .scale = power_of_two_scale(amax)};
  const float inverse = 1.0F / block.scale;
  for (std::size_t code = 0; code < 256; ++code) {
    const float value = decode_e4m3(static_cast<std::uint8_t>(code)) * scale;
    block.map.of[code] = encode_e4m3(value * inverse);
  }
  return block;
}

}  // namespace lode::formats
