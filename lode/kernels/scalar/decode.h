#pragma once

#include <cstddef>
#include <cstring>

#include "lode/formats/bf16.h"
#include "lode/formats/block_scale.h"
#include "lode/formats/e2m1.h"
#include "lode/formats/f16.h"
#include "lode/kernels/kernel_table.h"

namespace lode::kernels::scalar {

template <class T>
LODE_KERNEL_INLINE T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The 4 bytes of a row's line that hold code number `k` of a super-block, and the code's place in
/// them.
struct CodePlace {
  const std::byte* word;
  std::size_t index;
};
LODE_KERNEL_INLINE CodePlace code_place(const PanelShape& shape, const SuperBlock& block,
                                        std::size_t row, std::size_t k) noexcept {
  const std::size_t per_line = shape.k_per_line();
  return {block.codes + k / per_line * kLineBytes + 4 * row, k % per_line};
}

LODE_KERNEL_INLINE std::uint8_t e2m1_code(const CodePlace& at) noexcept {
  const auto pair = load<std::uint8_t>(at.word + at.index / 2);
  return at.index % 2 == 0 ? formats::low_nibble(pair) : formats::high_nibble(pair);
}

/// The value of one code, before any scale.
LODE_KERNEL_INLINE float code_value(PanelKind kind, const CodePlace& at) noexcept {
  switch (kind) {
    case PanelKind::kF32:
      return load<float>(at.word);
    case PanelKind::kF16:
      return formats::decode_f16(load<std::uint16_t>(at.word + 2 * at.index));
    case PanelKind::kBf16:
      return formats::decode_bf16(load<std::uint16_t>(at.word + 2 * at.index));
    case PanelKind::kE4m3:
      return formats::decode_e4m3(load<std::uint8_t>(at.word + at.index));
    case PanelKind::kI8:
      return static_cast<float>(load<std::int8_t>(at.word + at.index));
    case PanelKind::kMxfp4:
    case PanelKind::kNvfp4:
      break;
  }
  return formats::decode_e2m1(e2m1_code(at));
}

LODE_KERNEL_INLINE float apply(const MatrixScale& scale, float value) noexcept {
  switch (scale.rule) {
    case formats::TensorScale::kMultiplier:
      return value * scale.value;
    case formats::TensorScale::kDivisor:
      return value / scale.value;
    case formats::TensorScale::kNone:
      break;
  }
  return value;
}

/// What the codes of one row and group are multiplied by; only for kinds that have scales.
LODE_KERNEL_INLINE float multiplier(PanelKind kind, const MatrixScale& scale,
                                    const std::byte* stored) noexcept {
  if (kind == PanelKind::kMxfp4)
    return apply(scale, formats::decode_e8m0(load<std::uint8_t>(stored)));
  if (kind == PanelKind::kNvfp4)
    return apply(scale, formats::decode_e4m3(load<std::uint8_t>(stored)));
  return apply(scale, load<float>(stored));
}

/// The stored scale of (group, row) of a super-block.
LODE_KERNEL_INLINE const std::byte* scale_place(const PanelShape& shape, const SuperBlock& block,
                                                std::size_t group, std::size_t row) noexcept {
  return block.scales + (group * kPanelRows + row) * shape.scale_bytes;
}

}  // namespace lode::kernels::scalar
