#pragma once

#include <cstddef>
#include <cstdint>

#include "lode/kernels/kernel_table.h"

namespace lode::kernels {

// A packed activation row of k numbers: blocks of 32, the last filled up with zeros.
//
//   codes        int8  [32 * blocks]  kI8Plain: rising k
//                                     kI8Fp4: in every 8 k the order 0 2 4 6 1 3 5 7, the low
//                                     nibbles of a row's dword and then the high ones
//   scales       f32   [blocks]       x is about code * scale
//   corrections  int32 [2 * blocks]   -kCodeBias * (sum of 16 codes)
//   zeros up to a whole line
//
// Unsigned-times-signed instructions want weights w + kCodeBias >= 0; starting a sum at the
// correction takes the bias out again, exactly.

inline constexpr std::size_t kActivationBlock = 32;
inline constexpr std::int32_t kFp4CodeBias = 12;     // doubled E2M1 values are -12 .. 12
inline constexpr std::int32_t kPlainCodeBias = 128;  // int8 as it is

constexpr std::int32_t code_bias(ActivationForm form) noexcept {
  return form == ActivationForm::kI8Fp4 ? kFp4CodeBias : kPlainCodeBias;
}

/// Where the parts of a packed row begin.
struct ActivationOffsets {
  std::size_t scales_bytes;
  std::size_t corrections_bytes;
};
LODE_KERNEL_INLINE constexpr ActivationOffsets activation_offsets(std::size_t k) noexcept {
  const std::size_t blocks = (k + kActivationBlock - 1) / kActivationBlock;
  return {kActivationBlock * blocks, (kActivationBlock + 4) * blocks};
}

/// The parts of one packed row.
struct PackedActivation {
  const std::int8_t* codes;
  const float* scales;
  const std::int32_t* corrections;
};
LODE_KERNEL_INLINE PackedActivation packed_activation(const std::byte* row,
                                                      std::size_t k) noexcept {
  const ActivationOffsets at = activation_offsets(k);
  return {reinterpret_cast<const std::int8_t*>(row),
          reinterpret_cast<const float*>(row + at.scales_bytes),
          reinterpret_cast<const std::int32_t*>(row + at.corrections_bytes)};
}

/// The row of x that token t of `call` uses.
LODE_KERNEL_INLINE const std::byte* activation_row(const PanelDot& call, std::size_t t) noexcept {
  const std::size_t row = call.rows == nullptr ? t : call.rows[t];
  return call.x + row * call.x_stride_bytes;
}

}  // namespace lode::kernels
