#pragma once

#include <cstddef>
#include <cstdint>

#include "lode/kernels/kernel_table.h"

namespace lode::kernels {

// A packed activation row of k numbers: blocks of 32 one after another, the last filled up with
// zeros; then zeros up to a whole line. One pointer a token leads a kernel to all it needs.

inline constexpr std::size_t kActivationBlock = 32;
inline constexpr std::int32_t kFp4CodeBias = 12;     // doubled E2M1 values are -12 .. 12
inline constexpr std::int32_t kPlainCodeBias = 128;  // int8 as it is

LODE_KERNEL_INLINE constexpr std::int32_t code_bias(ActivationForm form) noexcept {
  return form == ActivationForm::kI8Fp4 ? kFp4CodeBias : kPlainCodeBias;
}

/// 32 numbers: x is about code * scale.
///
/// Unsigned-times-signed instructions want weights w + code_bias >= 0; starting a sum at the
/// correction takes the bias out again, exactly.
struct PackedBlock {
  std::int8_t codes[kActivationBlock];  // kI8Plain: rising k. kI8Fp4: in every 8 k the order
                                        // 0 2 4 6 1 3 5 7, low nibbles of a row's dword first
  float scale;
  std::int32_t corrections[2];  // -code_bias * (sum of 16 codes)
};
static_assert(sizeof(PackedBlock) == 44);

/// Blocks of a packed row of k numbers.
LODE_KERNEL_INLINE constexpr std::size_t packed_blocks(std::size_t k) noexcept {
  return (k + kActivationBlock - 1) / kActivationBlock;
}

LODE_KERNEL_INLINE const PackedBlock* packed_row(const std::byte* row) noexcept {
  return reinterpret_cast<const PackedBlock*>(row);
}

/// The row of x that token t of `call` uses.
LODE_KERNEL_INLINE const std::byte* activation_row(const PanelDot& call, std::size_t t) noexcept {
  const std::size_t row = call.rows == nullptr ? t : call.rows[t];
  return call.x + row * call.x_stride_bytes;
}

}  // namespace lode::kernels
