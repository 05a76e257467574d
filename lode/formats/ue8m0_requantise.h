#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/formats/format.h"
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

/// One row of blocks of an E4M3 matrix: rows of codes at equal distances under one row of scales.
///
/// Shapes: codes [rows, k]; scales [cdiv(k, block_k)] of scale_format, which number_at knows.
struct Fp8Strip {
  const std::byte* first = nullptr;
  std::uint64_t step_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  std::uint64_t block_k = 128;
  std::span<const std::byte> scales;
  Format scale_format = Format::kF32;

  std::uint64_t columns() const noexcept { return k == 0 ? 0 : (k - 1) / block_k + 1; }
};

/// The least largest magnitude that a block is brought to a scale for.
inline constexpr float kUe8m0LeastAmax = 1e-4F;
/// The power of two for a block of that largest magnitude; NaN of NaN.
float ue8m0_scale_of(float amax) noexcept;
/// The largest magnitude of block `column` of a strip as it is; NaN with a NaN code or scale.
float block_amax(const Fp8Strip& strip, std::uint64_t column) noexcept;

/// All blocks of a strip, looked up by `map`. `codes` may be the strip's own bytes.
///
/// Shapes: codes rows of k at distances of step_bytes; scales [columns], or empty if nobody asks.
void requantise_strip(const Fp8Strip& strip, std::span<std::byte> codes, std::uint64_t step_bytes,
                      std::span<float> scales, MapCodesFn map = map_codes) noexcept;

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
