#include "lode/formats/ue8m0_requantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lode/formats/dequantise.h"

namespace lode::formats {
namespace {

/// Part of row `row` of a strip that lies in block `column`.
std::span<const std::byte> part(const Fp8Strip& strip, std::uint64_t row,
                                std::uint64_t column) noexcept {
  const std::uint64_t begin = column * strip.block_k;
  return {strip.first + row * strip.step_bytes + begin, std::min(strip.block_k, strip.k - begin)};
}

/// Largest magnitudes of codes seen so far. Lanes of a constant number, so that compilers make
/// vectors of them; joined once, after all rows.
class LargestCodes {
 public:
  void add(std::span<const std::byte> codes) noexcept {
    std::size_t i = 0;
    for (; i + kLanes <= codes.size(); i += kLanes) {
      std::array<std::uint8_t, kLanes> next;
      std::memcpy(next.data(), codes.data() + i, kLanes);
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const auto magnitude = static_cast<std::uint8_t>(next[lane] & 0x7FU);
        lanes_[lane] = magnitude > lanes_[lane] ? magnitude : lanes_[lane];
      }
    }
    for (; i < codes.size(); ++i) {
      lanes_[0] = std::max(lanes_[0], std::to_integer<std::uint8_t>(codes[i] & std::byte{0x7F}));
    }
  }
  std::uint8_t largest() const noexcept { return *std::ranges::max_element(lanes_); }

 private:
  static constexpr std::size_t kLanes = 32;
  std::array<std::uint8_t, kLanes> lanes_{};
};

std::uint8_t largest_of(const Fp8Strip& strip, std::uint64_t column) noexcept {
  LargestCodes codes;
  for (std::uint64_t row = 0; row < strip.rows; ++row) codes.add(part(strip, row, column));
  return codes.largest();
}

/// A product with one factor rises with the other, rounded or not: no other code is larger.
float amax_of(std::uint8_t largest, float scale) noexcept {
  return std::fabs(decode_e4m3(largest) * scale);
}

}  // namespace

float ue8m0_scale_of(float amax) noexcept {
  if (std::isnan(amax)) return amax;
  return std::exp2(std::ceil(std::log2(std::max(amax, kUe8m0LeastAmax) / kE4m3Max)));
}

std::uint8_t largest_code(std::span<const std::byte> codes) noexcept {
  LargestCodes all;
  all.add(codes);
  return all.largest();
}

Ue8m0Block requantise_ue8m0(std::uint8_t largest, float scale) noexcept {
  Ue8m0Block block{.map = {}, .scale = ue8m0_scale_of(amax_of(largest, scale))};
  const float inverse = 1.0F / block.scale;
  for (std::size_t code = 0; code < 256; ++code) {
    const float value = decode_e4m3(static_cast<std::uint8_t>(code)) * scale;
    block.map.of[code] = encode_e4m3(value * inverse);
  }
  return block;
}

float block_amax(const Fp8Strip& strip, std::uint64_t column) noexcept {
  return amax_of(largest_of(strip, column), number_at(strip.scale_format, strip.scales, column));
}

void requantise_strip(const Fp8Strip& strip, std::span<std::byte> codes, std::uint64_t step_bytes,
                      std::span<float> scales, MapCodesFn map) noexcept {
  for (std::uint64_t column = 0; column < strip.columns(); ++column) {
    const float scale = number_at(strip.scale_format, strip.scales, column);
    const Ue8m0Block block = requantise_ue8m0(largest_of(strip, column), scale);
    for (std::uint64_t row = 0; row < strip.rows; ++row) {
      const std::span<const std::byte> from = part(strip, row, column);
      const auto to = codes.subspan(row * step_bytes + column * strip.block_k, from.size());
      map(block.map, from.data(), from.size(), to.data());
    }
    if (!scales.empty()) scales[column] = block.scale;
  }
}

}  // namespace lode::formats
