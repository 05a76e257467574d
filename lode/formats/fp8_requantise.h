#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/e4m3.h"

namespace lode::formats {

// How engines turn FP8 codes under one scale into codes under another. What becomes of a code
// depends on the code and the two scales alone, so it is 256 numbers, looked up for every byte:
// no arithmetic per element.
//
// Source: weight_layouts 3.1 to 3.4; tests/golden/weight_layouts, fp8_tensor_*, fp8_fnuz.

/// The least scale of a row that engines quantise while they run: rows of zeros have it.
inline constexpr float kLeastDynamicScale = 1.0F / (448.0F * 512.0F);

/// Clamped to +-448, then to nearest, ties to even. The clamp drops NaN as IEEE's minimum does:
/// NaN becomes +448, 0x7E.
LODE_ALWAYS_INLINE std::uint8_t encode_e4m3_clamped(float value) noexcept {
  const float below = value < kE4m3Max ? value : kE4m3Max;
  return encode_e4m3(below > -kE4m3Max ? below : -kE4m3Max);
}

/// The engines' static quantiser: `inverse` is fp32(1 / scale). A scale of zero makes every code
/// 0x7E, harmless under a scale of zero.
LODE_ALWAYS_INLINE std::uint8_t quantise_static(float value, float inverse) noexcept {
  return encode_e4m3_clamped(value * inverse);
}

/// The scale of a row by the dynamic quantiser, and a code under it: a true division.
LODE_ALWAYS_INLINE float dynamic_scale(float amax) noexcept {
  const float scale = amax / kE4m3Max;
  return scale > kLeastDynamicScale ? scale : kLeastDynamicScale;
}
LODE_ALWAYS_INLINE std::uint8_t quantise_dynamic(float value, float scale) noexcept {
  return encode_e4m3_clamped(value / scale);
}

/// What every code becomes.
struct CodeMap {
  std::array<std::uint8_t, 256> of{};

  friend bool operator==(const CodeMap&, const CodeMap&) = default;
};

/// Looks n bytes up. `codes` and `out` may be the same bytes, or apart. The plain way; kernels have
/// faster ones (KernelTable::map_codes).
///
/// Shapes: codes and out [n].
void map_codes(const CodeMap& map, const std::byte* codes, std::size_t n, std::byte* out) noexcept;
using MapCodesFn = decltype(&map_codes);

/// A scale that lies on the device as a tensor without axes takes part in an FP16 product: CUDA
/// rounds it to FP16 first, the CPU multiplies by all of it. They differ for scales that FP16
/// cannot hold.
enum class ScaleRounding : std::uint8_t { kToF16, kNone };

/// Codes under `from` become codes under `to`: dequantised in FP16 (the product rounded to it),
/// then the static quantiser. Not the identity where the scales are equal and FP16 cannot hold
/// them.
CodeMap requantise_map(float from, float to,
                       ScaleRounding rounding = ScaleRounding::kToF16) noexcept;

/// The largest; NaN only if all are NaN, 0 of nothing.
float largest_scale(std::span<const float> scales) noexcept;

/// A dense layer whose shards were quantised apart: brings all to the largest scale, in place, and
/// returns it. A shard without rows is passed over. Engines leave an entry that no checkpoint gave
/// at the lowest fp32: if that is the last one, the matrix was quantised as one and stays.
///
/// Shapes: codes [sum of shard_rows, k], shard_rows and scales [shards].
/// Errors: kInvalidSource where the sizes do not agree, or there are no shards.
/// Memory: none.
Result<float> requantise_shards(std::span<std::byte> codes, std::uint64_t k,
                                std::span<const std::uint64_t> shard_rows,
                                std::span<const float> scales,
                                ScaleRounding rounding = ScaleRounding::kToF16);

/// One scale a row out of one scale a shard.
///
/// Shapes: shard_rows and scales [shards] -> [sum of shard_rows].
/// Errors: kInvalidSource where there are not as many scales as shards, or more rows than 2^31.
Result<std::vector<float>> channelwise_scales(std::span<const std::uint64_t> shard_rows,
                                              std::span<const float> scales);

/// E4M3 codes for hardware that reads them as E4M3FNUZ, whose bias is one more: every value is
/// halved, so scales double (`fnuz_scale`). -0 is NaN there and becomes 0; what was NaN becomes
/// +-240.
CodeMap fnuz_map() noexcept;
LODE_ALWAYS_INLINE float fnuz_scale(float scale) noexcept { return scale * 2.0F; }
/// The same for an E8M0 scale; NaN (255) becomes the largest, 254.
LODE_ALWAYS_INLINE std::uint8_t fnuz_scale_e8m0(std::uint8_t scale) noexcept {
  return static_cast<std::uint8_t>(scale < 254 ? scale + 1 : 254);
}

}  // namespace lode::formats
