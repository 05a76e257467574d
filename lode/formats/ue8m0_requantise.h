#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/formats/fp8_requantise.h"

namespace lode::formats {

// E4M3 blocks with fp32 scales, brought to scales that are powers of two: kernels that know only
// exponents (UE8M0) then compute with them exactly. The codes of a block change to fit the new
// scale, which is never below the old range: 2^ceil(log2(a/448)), a the block's largest magnitude
// as it was and at least 1e-4.
//
// The logarithm is an fp32 one, as the engines': a value a few ulp above a power of two may round
// down to it. DeepGEMM's own helper rounds up by bits instead and can differ there.
//
// Source: weight_layouts 3.6; tests/golden/weight_layouts, ue8m0_requant.

/// The largest magnitude among codes, as a code; 0 of none. A NaN code (0x7F) is above all others.
///
/// Shapes: codes [n].
std::uint8_t largest_code(std::span<const std::byte> codes) noexcept;

/// What becomes of a block: its codes by the map, its scale to the power of two.
struct Ue8m0Block {
  CodeMap map;
  float scale = 1.0F;  // NaN for a block with a NaN code or scale
};

/// `largest` is largest_code of all codes of the block, `scale` its scale.
Ue8m0Block requantise_ue8m0(std::uint8_t largest, float scale) noexcept;

/// The exponent byte of a scale that is a power of two: its E8M0 code, for kernels that take those.
LODE_ALWAYS_INLINE std::uint8_t exponent_byte(float scale) noexcept {
  return static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, scale) >> 23);
}

/// E8M0 scales as engines widen them: the byte as an exponent. Byte 0 gives 0 instead of 2^-127,
/// and 255 infinity instead of NaN.
LODE_ALWAYS_INLINE float widen_e8m0(std::uint8_t scale) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(scale) << 23);
}

}  // namespace lode::formats
