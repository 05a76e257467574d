#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/f16.h"
#include "lode/kernels/test_panels.h"
#include "lode/layout/scatter.h"
#include "lode/ops/linear.h"

// For the tests of this room and those above: random weights in any encoding, in panels and as the
// numbers that they are.

namespace lode::ops {

/// A random matrix [rows, k] as a file holds it, about N(0, size^2).
class TestWeights {
 public:
  TestWeights(const formats::Encoding& encoding, std::uint64_t rows, std::uint64_t k,
              std::uint32_t seed, float size = 0.1F)
      : random_(seed) {
    matrix_.encoding = encoding;
    matrix_.rows = rows;
    matrix_.k = k;
    codes_.resize(rows * formats::row_bytes(encoding, k));
    scales_.resize(formats::scales_bytes(encoding, rows, k));
    fill_codes(size);
    fill_scales(size);
    if (encoding.tensor_scale == formats::TensorScale::kMultiplier) matrix_.tensor_scale = 0.75F;
    if (encoding.tensor_scale == formats::TensorScale::kDivisor) matrix_.tensor_scale = 1.25F;
  }

  std::uint64_t rows() const { return matrix_.rows; }
  std::uint64_t k() const { return matrix_.k; }
  const formats::Encoding& encoding() const { return matrix_.encoding; }
  float& matrix_scale() { return matrix_.tensor_scale; }

  /// The weights as numbers: [rows][k].
  std::vector<float> values() const {
    formats::EncodedMatrix matrix = matrix_;
    matrix.codes = codes_;
    matrix.scales = scales_;
    std::vector<float> out(rows() * k());
    for (std::uint64_t row = 0; row < rows(); ++row) {
      formats::dequantise_row(matrix, row, std::span(out).subspan(row * k(), k()));
    }
    return out;
  }

  /// Writes them as matrix `index` of a panel layout.
  void pack(const layout::PanelLayout& place, std::uint32_t index,
            std::span<std::byte> panels) const {
    const layout::PanelTile tile{index, 0, rows(), 0, k()};
    layout::SourceCodes codes;
    codes.bytes = codes_;
    codes.outer_stride_bytes = formats::row_bytes(encoding(), k());
    layout::scatter_codes(place, tile, codes, panels);
    if (!encoding().has_scale) return;
    layout::SourceScales scales;
    scales.bytes = scales_;
    scales.format = encoding().scale;
    const std::uint64_t columns = formats::scale_columns(encoding(), k());
    scales.outer_stride_bytes = columns * (encoding().scale == formats::Format::kF32 ? 4 : 1);
    if (!layout::scatter_scales(place, tile, scales, panels)) std::abort();
    if (!place.has_matrix_scales()) return;
    std::memcpy(panels.data() + place.matrix_scale_offset(index), &matrix_.tensor_scale, 4);
  }

 private:
  void put_code(std::uint64_t index, float value) {
    const auto write = [&](auto code) {
      std::memcpy(codes_.data() + index * sizeof code, &code, sizeof code);
    };
    if (encoding().element == formats::Format::kF32) write(value);
    if (encoding().element == formats::Format::kBf16) write(formats::encode_bf16(value));
    if (encoding().element == formats::Format::kF16) write(formats::encode_f16(value));
  }
  void fill_codes(float size) {
    std::normal_distribution<float> normal(0.0F, size);
    if (!encoding().has_scale) {
      for (std::uint64_t i = 0; i < rows() * k(); ++i) put_code(i, normal(random_));
      return;
    }
    for (std::byte& code : codes_) {
      auto bits = static_cast<std::uint8_t>(random_());
      // E4M3: magnitudes up to 8, so that no NaN and no huge ones are among them.
      if (encoding().element == formats::Format::kE4m3) bits = (bits & 0x80) | bits % 0x50;
      code = static_cast<std::byte>(bits);
    }
  }
  void fill_scales(float size) {
    std::uniform_real_distribution<float> factor(0.2F, 0.6F);
    const bool is_i8 = encoding().element == formats::Format::kI8;
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      const float scale = size * factor(random_) / (is_i8 ? 64.0F : 1.0F);
      if (encoding().scale == formats::Format::kF32) {
        if (i % 4 == 0) std::memcpy(scales_.data() + i, &scale, 4);
      } else if (encoding().scale == formats::Format::kE8m0) {
        scales_[i] = static_cast<std::byte>(127 + std::ilogb(scale));
      } else {  // E4M3: exponent 7 of bias 7 is 1
        const auto exponent = static_cast<std::uint32_t>(7 + std::ilogb(scale));
        scales_[i] = static_cast<std::byte>(exponent * 8 + random_() % 8);
      }
    }
  }

  std::mt19937 random_;
  formats::EncodedMatrix matrix_;
  std::vector<std::byte> codes_;
  std::vector<std::byte> scales_;
};

/// One matrix in panels, or two side by side (kGateUpPanels).
class TestPanels {
 public:
  explicit TestPanels(const TestWeights& one)
      : layout_(*layout::PanelLayout::make(one.encoding(), one.rows(), one.k())),
        bytes_(layout_.total_bytes()) {
    one.pack(layout_, 0, span());
  }
  TestPanels(const TestWeights& gate, const TestWeights& up)
      : layout_(*layout::PanelLayout::make(gate.encoding(), gate.rows(), gate.k(), 2)),
        bytes_(layout_.total_bytes()) {
    gate.pack(layout_, 0, span());
    up.pack(layout_, 1, span());
  }
  tensor::TensorView view() const {
    return {{bytes_.data(), layout_.total_bytes()}, layout_.meta()};
  }

 private:
  std::span<std::byte> span() { return {bytes_.data(), layout_.total_bytes()}; }

  layout::PanelLayout layout_;
  kernels::Lines bytes_;
};

/// A Compute with threads and tiles of its own.
class TestCompute {
 public:
  TestCompute(std::size_t num_threads, Mode mode,
              const kernels::KernelTable& table = kernels::available().back())
      : pool_(num_threads), tiles_(pool_.num_threads() * kTileFloats) {
    compute_ = {&table, &pool_, mode, tiles_, kTileFloats};
  }
  const Compute& operator*() const { return compute_; }

 private:
  static constexpr std::size_t kTileFloats = kRowBlock * kMaxTaskPanels * kernels::kPanelRows;
  parallel::ThreadPool pool_;
  std::vector<float> tiles_;
  Compute compute_;
};

/// Rows with memory of their own, filled with N(0, 1).
class TestRows {
 public:
  TestRows(std::size_t count, std::size_t k, Mode mode, std::uint32_t seed) : count_(count) {
    memory::Carver size;
    carve_rows(size, count, k, mode);
    bytes_ = kernels::Lines(size.bytes());
    memory::Carver carver(std::span(bytes_.data(), size.bytes()));
    rows_ = carve_rows(carver, count, k, mode);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t row = 0; row < count; ++row) {
      for (float& value : rows_.row(row)) value = normal(random);
    }
  }
  const Rows& operator*() const { return rows_; }
  const Rows* operator->() const { return &rows_; }
  /// All numbers without the padding between rows.
  std::vector<float> numbers() const {
    std::vector<float> out;
    for (std::size_t row = 0; row < count_; ++row) {
      out.insert(out.end(), rows_.row(row).begin(), rows_.row(row).end());
    }
    return out;
  }

 private:
  std::size_t count_;
  kernels::Lines bytes_{0};
  Rows rows_;
};

inline Forms all_forms() {
  Forms forms;
  forms.add(kernels::ActivationForm::kI8Fp4);
  forms.add(kernels::ActivationForm::kI8Plain);
  return forms;
}

/// Bound of the rounding errors of a sum of n products in f32, in any order, relative to the sum of
/// magnitudes: n * 2^-24 / (1 - n * 2^-24), one more rounding a term for the weight itself.
/// Source: N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
inline double sum_error(std::size_t n) {
  const double unit = std::ldexp(static_cast<double>(n) + 1.0, -24);
  return unit / (1.0 - unit);
}

}  // namespace lode::ops
