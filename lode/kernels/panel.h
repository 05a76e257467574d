#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lode/formats/format.h"

/// For what kernel files of any ISA share: inlined always, so that no weak symbol of it exists.
#define LODE_KERNEL_INLINE [[gnu::always_inline]] inline

namespace lode::kernels {

// A panel holds 16 rows of a weight matrix [rows, k] so that one 64-byte line serves 16 outputs.
//
//   line:         row 0      row 1             row 15
//               [4 bytes]  [4 bytes]   ...   [4 bytes]     = 64 bytes; 4 bytes hold 32/bits codes,
//                                                            k rising with the bytes, and for E2M1
//                                                            the low nibble first, as in the file
//   super-block:  128 codes of k a row: 4*bits code lines, then its scale lines, group-major:
//                 scale of (group g, row r) is number g*16 + r after the code lines
//   panel:        its super-blocks one after another; the last may be shorter. Each part (code
//                 lines, scale lines) is padded with zero bytes to whole lines.
//
//   mxfp4: 16 + 1 lines a super-block (4.25 bits a weight)   nvfp4: 16 + 2 (4.5)
//   fp8 with f32 scales: 32 + 1                               bf16: 64       f32: 128
//
// Rows beyond the matrix are zero codes with zero scales. Every line is 64-byte aligned.
// Source: spec cpu_performance 5.1 (one layout serves AVX2, VNNI, BF16 and AMX kernels).

inline constexpr std::size_t kPanelRows = 16;
inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kSuperBlockK = 128;

/// The encodings that panels hold, as one enumerator a kernel.
enum class PanelKind : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kE4m3,   // f32 scale a row and group of 32, 64 or 128
  kI8,     // the same
  kMxfp4,  // e8m0 scale a row and group of 32
  kNvfp4,  // e4m3 scale a row and group of 16
};
inline constexpr std::size_t kNumPanelKinds = 7;

/// What a panel of one encoding is made of.
struct PanelShape {
  PanelKind kind = PanelKind::kF32;
  std::uint32_t bits = 32;               // a code
  std::uint32_t scale_bytes = 0;         // a scale; 0 where there are none
  std::uint32_t group_k = kSuperBlockK;  // k under one stored scale: divides the super-block

  LODE_KERNEL_INLINE constexpr std::size_t k_per_line() const noexcept { return 32 / bits; }
  LODE_KERNEL_INLINE constexpr std::size_t code_lines(std::size_t k) const noexcept {
    return (k + k_per_line() - 1) / k_per_line();
  }
  LODE_KERNEL_INLINE constexpr std::size_t groups(std::size_t k) const noexcept {
    return scale_bytes == 0 ? 0 : (k + group_k - 1) / group_k;
  }
  LODE_KERNEL_INLINE constexpr std::size_t scale_lines(std::size_t k) const noexcept {
    return (groups(k) * kPanelRows * scale_bytes + kLineBytes - 1) / kLineBytes;
  }
  /// Bytes of a super-block that holds `k` <= 128 codes a row.
  LODE_KERNEL_INLINE constexpr std::size_t super_block_bytes(
      std::size_t k = kSuperBlockK) const noexcept {
    return (code_lines(k) + scale_lines(k)) * kLineBytes;
  }
  LODE_KERNEL_INLINE constexpr std::size_t panel_bytes(std::size_t k) const noexcept {
    const std::size_t whole = k / kSuperBlockK;
    const std::size_t rest = k % kSuperBlockK;
    return whole * super_block_bytes() + (rest == 0 ? 0 : super_block_bytes(rest));
  }
  friend bool operator==(const PanelShape&, const PanelShape&) = default;
};

/// Where the super-block of one panel that begins at `k_begin` keeps its codes and scales.
struct SuperBlock {
  const std::byte* codes;
  const std::byte* scales;
  std::size_t k;  // codes a row: 128, or what is left at the end
};
LODE_KERNEL_INLINE SuperBlock super_block(const PanelShape& shape, const std::byte* panel,
                                          std::size_t k_begin, std::size_t k) noexcept {
  const std::size_t left = k - k_begin;
  const std::size_t here = left < kSuperBlockK ? left : kSuperBlockK;
  const std::byte* codes = panel + k_begin / kSuperBlockK * shape.super_block_bytes();
  return {codes, codes + shape.code_lines(here) * kLineBytes, here};
}

namespace internal {

constexpr std::optional<PanelShape> plain_panel(PanelKind kind, std::uint32_t bits,
                                                bool has_scale) noexcept {
  if (has_scale) return std::nullopt;
  return PanelShape{kind, bits};
}

}  // namespace internal

/// The panel of an encoding, or nothing where panels do not hold it. Scales that cover more than a
/// super-block of k, or several rows, are written out for every row and super-block.
constexpr std::optional<PanelShape> panel_shape(const formats::Encoding& encoding) noexcept {
  using formats::Format;
  const std::uint32_t block = encoding.block_k;
  const bool wide = block == formats::kWhole || block % kSuperBlockK == 0;
  const std::uint32_t group = wide ? kSuperBlockK : block;
  const bool f32_scales = encoding.has_scale && encoding.scale == Format::kF32 && group % 32 == 0 &&
                          kSuperBlockK % group == 0;
  switch (encoding.element) {
    case Format::kF32:
      return internal::plain_panel(PanelKind::kF32, 32, encoding.has_scale);
    case Format::kF16:
      return internal::plain_panel(PanelKind::kF16, 16, encoding.has_scale);
    case Format::kBf16:
      return internal::plain_panel(PanelKind::kBf16, 16, encoding.has_scale);
    case Format::kE4m3:
      return f32_scales ? std::optional(PanelShape{PanelKind::kE4m3, 8, 4, group}) : std::nullopt;
    case Format::kI8:
      return f32_scales ? std::optional(PanelShape{PanelKind::kI8, 8, 4, group}) : std::nullopt;
    case Format::kE2m1:
      if (!encoding.has_scale || encoding.block_rows != 1) return std::nullopt;
      if (encoding.scale == Format::kE8m0 && block == 32) {
        return PanelShape{PanelKind::kMxfp4, 4, 1, 32};
      }
      if (encoding.scale == Format::kE4m3 && block == 16) {
        return PanelShape{PanelKind::kNvfp4, 4, 1, 16};
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace lode::kernels
