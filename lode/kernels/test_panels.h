#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lode/kernels/activation.h"
#include "lode/kernels/kernel_table.h"

// For the tests of this room: matrices written into panels straight from the picture in panel.h,
// and their values from the standards in double precision. Nothing here calls the code under test.

namespace lode::kernels {

struct alignas(kLineBytes) Line {
  std::byte bytes[kLineBytes];
};

/// Memory on a line's boundary, zeroed, with no line to spare: reading past it is an ASan fault.
class Lines {
 public:
  explicit Lines(std::size_t bytes) : lines_((bytes + kLineBytes - 1) / kLineBytes) {}
  std::byte* data() { return lines_.empty() ? nullptr : lines_.front().bytes; }
  const std::byte* data() const { return lines_.empty() ? nullptr : lines_.front().bytes; }

 private:
  std::vector<Line> lines_;
};

/// The value of a minifloat code, subnormals included. Source: the formula of IEEE 754 section 3.4.
inline double minifloat_value(std::uint32_t code, int mantissa_bits, int exponent_bits, int bias) {
  const auto mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
  const auto exponent = static_cast<int>((code >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const double value = std::ldexp(whole, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return (code >> (mantissa_bits + exponent_bits)) != 0 ? -value : value;
}

inline double code_value_by_standard(PanelKind kind, std::uint32_t code) {
  switch (kind) {
    case PanelKind::kF32:
      return static_cast<double>(__builtin_bit_cast(float, code));
    case PanelKind::kF16:
      return minifloat_value(code, 10, 5, 15);
    case PanelKind::kBf16:
      return minifloat_value(code, 7, 8, 127);
    case PanelKind::kE4m3:
      return (code & 0x7F) == 0x7F ? std::nan("") : minifloat_value(code, 3, 4, 7);
    case PanelKind::kI8:
      return static_cast<std::int8_t>(code);
    case PanelKind::kMxfp4:
    case PanelKind::kNvfp4:
      return minifloat_value(code, 1, 2, 1);
  }
  return 0.0;
}

inline double scale_value_by_standard(PanelKind kind, std::uint32_t stored) {
  if (kind == PanelKind::kMxfp4) {
    return stored == 255 ? std::nan("") : std::ldexp(1.0, static_cast<int>(stored) - 127);
  }
  if (kind == PanelKind::kNvfp4) return code_value_by_standard(PanelKind::kE4m3, stored);
  return static_cast<double>(__builtin_bit_cast(float, stored));
}

inline PanelShape shape_of(PanelKind kind) {
  switch (kind) {
    case PanelKind::kF32:
      return {kind, 32};
    case PanelKind::kF16:
    case PanelKind::kBf16:
      return {kind, 16};
    case PanelKind::kE4m3:
    case PanelKind::kI8:
      return {kind, 8, 4, 128};
    case PanelKind::kMxfp4:
      return {kind, 4, 1, 32};
    case PanelKind::kNvfp4:
      return {kind, 4, 1, 16};
  }
  return {};
}

/// A matrix of 16 * num_panels rows as codes and stored scales, and as panels.
class TestMatrix {
 public:
  TestMatrix(PanelShape shape, std::size_t num_panels, std::size_t k)
      : shape_(shape),
        num_panels_(num_panels),
        k_(k),
        codes_(num_panels * kPanelRows * k),
        scales_(num_panels * kPanelRows * shape.groups(k)),
        bytes_(num_panels * shape.panel_bytes(k)) {}

  std::uint32_t& code(std::size_t row, std::size_t k) { return codes_[row * k_ + k]; }
  std::uint32_t& stored_scale(std::size_t row, std::size_t group) {
    return scales_[row * shape_.groups(k_) + group];
  }
  MatrixScale scale;

  const PanelShape& shape() const { return shape_; }
  std::size_t rows() const { return num_panels_ * kPanelRows; }
  std::size_t num_panels() const { return num_panels_; }
  std::size_t k() const { return k_; }
  std::size_t groups() const { return shape_.groups(k_); }

  /// The weight in double precision, unrounded.
  double weight(std::size_t row, std::size_t k) const {
    const double value = code_value_by_standard(shape_.kind, codes_[row * k_ + k]);
    if (shape_.scale_bytes == 0) return value;
    const std::uint32_t stored = scales_[row * shape_.groups(k_) + k / shape_.group_k];
    const double block = scale_value_by_standard(shape_.kind, stored);
    const auto tensor = static_cast<double>(scale.value);
    if (scale.rule == formats::TensorScale::kMultiplier) return value * (block * tensor);
    if (scale.rule == formats::TensorScale::kDivisor) return value * (block / tensor);
    return value * block;
  }

  /// Writes codes and scales where panel.h says, and returns the panels.
  const std::byte* panels() {
    for (std::size_t row = 0; row < rows(); ++row) {
      for (std::size_t k = 0; k < k_; ++k) write_code(row, k);
      for (std::size_t group = 0; group < shape_.groups(k_); ++group) write_scale(row, group);
    }
    return bytes_.data();
  }

 private:
  std::byte* panel(std::size_t row) {
    return bytes_.data() + row / kPanelRows * shape_.panel_bytes(k_);
  }
  std::size_t block_begin(std::size_t k) const {
    // Lines of whole super-blocks: 4 * bits of codes, then 16 rows of scales for 128 / group_k.
    const std::size_t scale_bytes =
        shape_.scale_bytes == 0 ? 0 : 128 / shape_.group_k * 16 * shape_.scale_bytes;
    return k / 128 * (4 * shape_.bits * 64 + (scale_bytes + 63) / 64 * 64);
  }
  void write_code(std::size_t row, std::size_t k) {
    const std::uint32_t value = codes_[row * k_ + k];
    const std::size_t bit = k % 128 * shape_.bits;
    std::byte* word = panel(row) + block_begin(k) + bit / 32 * 64 + row % 16 * 4;
    std::uint32_t dword = 0;
    std::memcpy(&dword, word, 4);
    const std::uint32_t mask = shape_.bits == 32 ? ~0u : (1u << shape_.bits) - 1;
    dword = (dword & ~(mask << bit % 32)) | (value & mask) << bit % 32;
    std::memcpy(word, &dword, 4);
  }
  void write_scale(std::size_t row, std::size_t group) {
    const std::size_t k = group * shape_.group_k;
    const std::size_t here = k_ - k / 128 * 128 < 128 ? k_ - k / 128 * 128 : 128;
    const std::size_t lines = (here * shape_.bits + 31) / 32;
    const std::size_t in_block = k % 128 / shape_.group_k;
    std::byte* at =
        panel(row) + block_begin(k) + lines * 64 + (in_block * 16 + row % 16) * shape_.scale_bytes;
    std::memcpy(at, &scales_[row * shape_.groups(k_) + group], shape_.scale_bytes);
  }

  PanelShape shape_;
  std::size_t num_panels_, k_;
  std::vector<std::uint32_t> codes_, scales_;
  Lines bytes_;
};

/// Ordinary weights: finite, every small code met often.
inline void fill_random(TestMatrix& matrix, std::uint32_t seed) {
  std::mt19937 random(seed);
  const PanelKind kind = matrix.shape().kind;
  std::normal_distribution<float> normal;
  for (std::size_t row = 0; row < matrix.rows(); ++row) {
    for (std::size_t k = 0; k < matrix.k(); ++k) {
      std::uint32_t code = static_cast<std::uint32_t>(random());
      const auto bits = __builtin_bit_cast(std::uint32_t, normal(random));
      if (kind == PanelKind::kF32) code = bits;
      if (kind == PanelKind::kBf16) code = bits >> 16;
      if (kind == PanelKind::kF16) code = code % 0x7C00u | (code & 0x10000u) >> 1;
      if (kind == PanelKind::kE4m3) code = code % 0x7Fu | (code & 0x80u);
      if (kind == PanelKind::kI8) code &= 0xFFu;
      if (matrix.shape().bits == 4) code &= 0xFu;
      matrix.code(row, k) = code;
    }
    for (std::size_t group = 0; group < matrix.groups(); ++group) {
      const auto draw = static_cast<std::uint32_t>(random());
      std::uint32_t stored = __builtin_bit_cast(std::uint32_t, normal(random));
      if (kind == PanelKind::kMxfp4) stored = 110 + draw % 20;
      if (kind == PanelKind::kNvfp4) stored = draw % 0x7Fu;
      matrix.stored_scale(row, group) = stored;
    }
  }
  if (kind == PanelKind::kNvfp4) matrix.scale = {0.37F, formats::TensorScale::kMultiplier};
}

/// Rows of k random floats.
inline std::vector<float> random_rows(std::size_t rows, std::size_t k, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * k);
  for (float& value : x) value = normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 6));
  return x;
}

inline bool same_number(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return __builtin_bit_cast(std::uint32_t, a) == __builtin_bit_cast(std::uint32_t, b);
}

}  // namespace lode::kernels
