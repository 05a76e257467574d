#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/layout/matrix_rows.h"
#include "lode/layout/row_order.h"
#include "lode/parallel/function_ref.h"

namespace lode::layout {

//   Block scales of a matrix [rows, groups of k] become rows of groups [groups, rows], and within
//   each the columns are turned so that what a thread multiplies by lies together:
//
//   grouped, blocks of 64 columns (an 8 by 8 transposition):
//     column        0   1   2   3   4   5   6   7   8   9  ...
//     row           0   8  16  24  32  40  48  56   1   9  ...
//   grouped, and 0 2 1 3 within every four (scales of one byte under 16-bit activations):
//     row           0  16   8  24  32  48  40  56   1  17  ...
//   single, blocks of 32 columns (one scale a row, or 8-bit activations; biases):
//     column        0   1   2   3   4   5   6   7   8   9  ...
//     row           0   1   8   9  16  17  24  25   2   3  ...
//
// Padding: none of its own; rows are a multiple of the block.
// Source: weight_layouts 1.5 to 1.8; tests/golden/weight_layouts, marlin_permute_scales.

enum class MarlinScaleMap : std::uint8_t { kGrouped, kSingle };

/// Which row stands in which column.
struct MarlinScaleOrder {
  MarlinScaleMap map = MarlinScaleMap::kGrouped;
  bool middle_swapped = false;  // 0 2 1 3 within every four columns

  /// Columns that are turned together: 64 or 32.
  std::uint64_t block() const noexcept { return map == MarlinScaleMap::kGrouped ? 64 : 32; }
  std::uint64_t row_at(std::uint64_t column) const noexcept;
  /// The inverse of `row_at`.
  std::uint64_t column_of(std::uint64_t row) const noexcept;

  friend bool operator==(const MarlinScaleOrder&, const MarlinScaleOrder&) = default;
};

/// The map of scales of `group` k each, of a matrix with k numbers a row.
MarlinScaleMap marlin_scale_map(std::uint64_t group, std::uint64_t k,
                                bool narrow_activations) noexcept;

/// What becomes of each of 256 codes of one byte.
using ByteTable = std::array<std::uint8_t, 256>;

/// NVFP4: one power of two for all experts of a tensor, that brings its largest block scale (above
/// 0) near 448. 1 for F16 activations, and where there is no scale above 0.
float nvfp4_marlin_factor(float largest, formats::Format activations) noexcept;
/// E4M3 -> S0E5M3: five bits of exponent, three of mantissa, of scale * factor * 128; 0 below 2,
/// so also for what is negative. Exact.
ByteTable nvfp4_marlin_bytes(float factor, formats::Format activations) noexcept;
/// The inverse of nvfp4_marlin_bytes(1), where there is one: E4M3 of scale * factor.
std::uint8_t e4m3_of_s0e5m3(std::uint8_t byte) noexcept;
/// What the kernel multiplies an expert by, from its scale as a multiplier.
float nvfp4_marlin_global(float scale, float factor, formats::Format activations) noexcept;
/// The inverse: scale / factor.
float nvfp4_scale_of_global(float global, formats::Format activations) noexcept;

/// E8M0 -> E8M0: through BF16 nothing changes; F16 holds 103 to 142 alone, less becomes 0, more
/// NaN. FP4 under 8-bit activations takes 6 more; bytes above 249, whose values do not fit then,
/// NaN.
ByteTable mx_marlin_bytes(formats::Format activations, bool add_six) noexcept;

/// FP8: a scale rounded to BF16 or F16, times 2^120 or 2^8 in that format: the kernel only moves
/// the bits of a code. Infinite from 2^8 on.
std::uint16_t fp8_marlin_scale(float scale, formats::Format activations) noexcept;
/// The inverse.
float scale_of_fp8_marlin(std::uint16_t bits, formats::Format activations) noexcept;

/// Block scales of one byte and what becomes of them.
struct MarlinScaleBytes {
  MarlinScaleOrder columns;
  RowOrder rows;  // before the columns are turned
  MatrixRows source;
  std::array<ByteTable, 2> tables;  // of the halves; [0] of a code that is not there is the padding
};

/// Makes rows of groups [first_group, first_group + out.size() / rows.rows()).
///
/// Shapes: source halves [half_rows, at most the groups]; out [n * rows.rows()].
/// Memory: 5 KiB of stack.
void marlin_scale_bytes(const MarlinScaleBytes& scales, std::uint64_t first_group,
                        std::span<std::byte> out) noexcept;

/// Makes one row of numbers of 16 bits: scales of FP8 or a bias. `number` gives that of a row.
///
/// Shapes: out [2 * rows.rows()].
void marlin_row_of_words(const MarlinScaleOrder& columns, const RowOrder& rows,
                         parallel::FunctionRef<std::uint16_t(const HalfRow&)> number,
                         std::span<std::byte> out) noexcept;

/// Sizes that dense layers are padded to: a multiple of (64, 128) or of (128, 64), and of the group
/// along k; the smaller product, then the smaller sum.
struct MarlinSize {
  std::uint64_t rows = 0;
  std::uint64_t k = 0;

  friend bool operator==(const MarlinSize&, const MarlinSize&) = default;
};
/// Errors: kUnsupported where 64 bits do not hold them. `group` 0 is none.
Result<MarlinSize> marlin_padded_size(const MarlinSize& size, std::uint64_t group);

/// The intermediate size that experts of FP8, MXFP8 and integers are padded to.
/// Errors: as above.
Result<std::uint64_t> marlin_padded_intermediate(std::uint64_t intermediate, std::uint64_t group);

}  // namespace lode::layout
