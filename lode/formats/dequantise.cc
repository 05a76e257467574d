#include "lode/formats/dequantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "lode/formats/bf16.h"
#include "lode/formats/block_scale.h"
#include "lode/formats/e2m1.h"
#include "lode/formats/e5m2.h"
#include "lode/formats/f16.h"

namespace lode::formats {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, std::uint64_t index) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

bool has_decoder(Format format) noexcept {
  switch (format) {
    case Format::kF32:
    case Format::kF16:
    case Format::kBf16:
    case Format::kE4m3:
    case Format::kE5m2:
    case Format::kE8m0:
    case Format::kE2m1:
    case Format::kI8:
    case Format::kU8:
      return true;
    default:
      return false;
  }
}

/// What the codes of one block are multiplied by.
float multiplier(const EncodedMatrix& matrix, std::uint64_t index) noexcept {
  const float scale = number_at(matrix.encoding.scale, matrix.scales, index);
  switch (matrix.encoding.tensor_scale) {
    case TensorScale::kNone:
      return scale;
    case TensorScale::kMultiplier:
      return scale * matrix.tensor_scale;
    case TensorScale::kDivisor:
      return scale / matrix.tensor_scale;
  }
  return scale;
}

Status wrong_size(std::string_view thing, std::uint64_t wanted, std::uint64_t found) {
  return Error{.code = Code::kInvalidSource,
               .thing = std::string(thing),
               .wanted = std::to_string(wanted) + " bytes",
               .found = std::to_string(found) + " bytes"};
}

Status check_formats(const EncodedMatrix& matrix) {
  const Encoding& encoding = matrix.encoding;
  if (!has_decoder(encoding.element) || (encoding.has_scale && !has_decoder(encoding.scale))) {
    return Error{.code = Code::kUnsupported,
                 .thing = "dequantising",
                 .wanted = "a known element and scale format",
                 .found = std::string(info(encoding.element).name) + " with scales of " +
                          std::string(info(encoding.scale).name)};
  }
  if (encoding.element == Format::kE2m1 && matrix.k % 2 != 0) {
    return Error{.code = Code::kUnsupported,
                 .thing = "rows of e2m1",
                 .wanted = "an even length",
                 .found = std::to_string(matrix.k)};
  }
  return {};
}

}  // namespace

std::uint64_t row_bytes(const Encoding& encoding, std::uint64_t k) noexcept {
  const unsigned bits = info(encoding.element).bits;
  return bits < 8 ? k / 2 + k % 2 : k * (bits / 8);
}

std::uint64_t scales_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t k) noexcept {
  return scale_rows(encoding, rows) * scale_columns(encoding, k) * (info(encoding.scale).bits / 8);
}

Status check_matrix(const EncodedMatrix& matrix) {
  LODE_TRY_STATUS(check_formats(matrix));
  // Shapes come from files: no product may wrap before it is compared.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  if (matrix.rows > kMost || matrix.k > kMost) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "shape of a matrix",
                 .wanted = "at most 2^31 each way",
                 .found = std::to_string(matrix.rows) + " x " + std::to_string(matrix.k)};
  }
  const std::uint64_t codes = matrix.rows * row_bytes(matrix.encoding, matrix.k);
  if (matrix.codes.size() != codes) return wrong_size("codes", codes, matrix.codes.size());
  const std::uint64_t scales = scales_bytes(matrix.encoding, matrix.rows, matrix.k);
  if (matrix.scales.size() != scales) return wrong_size("scales", scales, matrix.scales.size());
  const bool plain = matrix.encoding.tensor_scale == TensorScale::kNone;
  if (!plain && !(std::isfinite(matrix.tensor_scale) && matrix.tensor_scale > 0.0F)) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "scale of a matrix",
                 .wanted = "a finite number above zero",
                 .found = std::to_string(matrix.tensor_scale)};
  }
  return {};
}

float number_at(Format format, std::span<const std::byte> bytes, std::uint64_t index) noexcept {
  const auto byte = [&] { return load<std::uint8_t>(bytes, index); };
  switch (format) {
    case Format::kF32:
      return load<float>(bytes, index);
    case Format::kF16:
      return decode_f16(load<std::uint16_t>(bytes, index));
    case Format::kBf16:
      return decode_bf16(load<std::uint16_t>(bytes, index));
    case Format::kE4m3:
      return decode_e4m3(byte());
    case Format::kE5m2:
      return decode_e5m2(byte());
    case Format::kE8m0:
      return decode_e8m0(byte());
    case Format::kE2m1: {
      const auto pair = load<std::uint8_t>(bytes, index / 2);
      return decode_e2m1(index % 2 == 0 ? low_nibble(pair) : high_nibble(pair));
    }
    case Format::kI8:
      return static_cast<float>(load<std::int8_t>(bytes, index));
    case Format::kU8:
      return static_cast<float>(byte());
    default:
      return 0.0F;  // check_matrix refuses these
  }
}

void dequantise_row(const EncodedMatrix& matrix, std::uint64_t row, std::span<float> out) noexcept {
  const Encoding& encoding = matrix.encoding;
  const std::uint64_t stride = row_bytes(encoding, matrix.k);
  const auto codes = matrix.codes.subspan(row * stride, stride);
  const std::uint64_t step =
      encoding.has_scale && encoding.block_k != kWhole ? encoding.block_k : matrix.k;
  const std::uint64_t block_row = encoding.block_rows == kWhole ? 0 : row / encoding.block_rows;
  const std::uint64_t first_scale = block_row * scale_columns(encoding, matrix.k);
  for (std::uint64_t begin = 0; begin < matrix.k; begin += step) {
    const std::uint64_t end = std::min(matrix.k, begin + step);
    const float scale = encoding.has_scale ? multiplier(matrix, first_scale + begin / step) : 1.0F;
    for (std::uint64_t i = begin; i < end; ++i) {
      out[i] = number_at(encoding.element, codes, i) * scale;
    }
  }
}

}  // namespace lode::formats
