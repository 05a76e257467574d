#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/formats/format.h"

namespace lode::formats {

/// A quantised matrix as it lies, row after row: what `dequantise_row` reads.
///
/// Shapes: codes [rows, k] in the element format (two E2M1 a byte, low nibble first), scales
///         [scale_rows, scale_columns] in the scale format, little-endian, both without padding.
struct EncodedMatrix {
  Encoding encoding;
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  float tensor_scale = 1.0F;  // weight_scale_2 or weight_global_scale, as the encoding says
};

/// Bytes of one row of codes, and of all scales, of a matrix without padding.
std::uint64_t row_bytes(const Encoding& encoding, std::uint64_t k) noexcept;
std::uint64_t scales_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t k) noexcept;

/// Whether `matrix` can be dequantised at all.
///
/// Errors: kUnsupported for element or scale formats that this function does not know or E2M1 rows
///         of odd length; kInvalidSource where codes or scales have not the size the shape asks
///         for, or the scale of the matrix is not a finite number above zero.
Status check_matrix(const EncodedMatrix& matrix);

/// The law: row `row` of the matrix in fp32. The multiplier of a block is formed first and rounded
/// once, its product with a code is rounded once more; no kernel may give anything else.
/// Only for matrices that `check_matrix` accepts. A NaN scale makes its block NaN.
///
/// Shapes: out [k].
/// Source: tests/golden/quantised; ModelOpt and compressed-tensors evaluate in this order.
void dequantise_row(const EncodedMatrix& matrix, std::uint64_t row, std::span<float> out) noexcept;

/// One stored number as fp32: element `index` of `bytes` in `format` (no 6-bit, FNUZ or 64-bit).
float number_at(Format format, std::span<const std::byte> bytes, std::uint64_t index) noexcept;

}  // namespace lode::formats
