#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/layout/marlin_scales.h"
#include "lode/layout/marlin_weights.h"
#include "lode/layout/matrix_rows.h"
#include "lode/targets/losses.h"

namespace lode::targets {

/// A matrix, or gate and up together, before and after it is padded.
struct MarlinExtents {
  std::uint32_t num_halves = 1;
  bool in_turn = false;  // gate's rows and up's in turn, and so they stay
  std::uint64_t half_rows = 0;
  std::uint64_t padded_half_rows = 0;
  std::uint64_t k = 0;
  std::uint64_t padded_k = 0;
};

/// What the kernels are.
struct MarlinKernel {
  bool narrow_activations = false;                       // 8 bits: FP8
  formats::Format activations = formats::Format::kBf16;  // else BF16 or F16; of scales and biases
};

/// How block scales become what the kernels multiply by.
enum class MarlinScaleRule : std::uint8_t { kNvfp4, kMx, kFp8 };

/// One matrix of an expert, or gate and up together, as the Marlin kernels hold it: weights in
/// tiles, scales group first, a bias in turns.
///
/// Tiles of weights are made a row of tiles at a time (a unit), scales a row of groups at a time.
class MarlinMatrix {
 public:
  /// Errors: kUnsupported naming what the kernels do not take: sizes that tiles do not have (also
  ///         after padding), a k that is not whole groups, an encoding other than NVFP4, MXFP4,
  ///         MXFP8 and FP8 with scales of a matrix, of rows or of blocks.
  static Result<MarlinMatrix> make(const MarlinExtents& extents, const formats::Encoding& encoding,
                                   formats::Format scale_format, const MarlinKernel& kernel);

  const layout::MarlinLayout& weights() const noexcept { return weights_; }
  const layout::RowOrder& rows() const noexcept { return rows_; }
  MarlinScaleRule rule() const noexcept { return rule_; }
  const MarlinKernel& kernel() const noexcept { return kernel_; }
  /// Rows of groups: 1 where each row has one scale.
  std::uint64_t groups() const noexcept { return groups_; }
  std::uint64_t scale_bytes() const noexcept { return rule_ == MarlinScaleRule::kFp8 ? 2 : 1; }
  std::uint64_t scale_unit_bytes() const noexcept { return rows_.rows() * scale_bytes(); }
  formats::Format scale_dtype() const noexcept;
  /// The scale that a matrix has alone comes from elsewhere (`matrix_scales`).
  bool scale_of_matrix() const noexcept { return encoding_.block_rows == formats::kWhole; }
  /// Of the weights and of the scales, what holds nothing of the checkpoint.
  std::uint64_t weight_padding_bytes() const noexcept;
  std::uint64_t scale_padding_bytes() const noexcept;
  std::uint64_t bias_padding_bytes() const noexcept;

  /// Makes units [first_unit, ...) of the weights.
  /// Shapes: codes halves [half_rows, row bytes of k]; out [n * weights().unit_bytes()].
  void make_weights(const layout::MatrixRows& codes, std::uint64_t first_unit,
                    std::span<std::byte> out) const noexcept;
  /// What scales of one byte become.
  using Tables = std::array<layout::ByteTable, 2>;
  /// Makes rows of groups [first_group, ...) of NVFP4 and MX scales.
  /// Shapes: scales halves [half_rows, groups of k]; out [n * scale_unit_bytes()].
  void make_scale_bytes(const layout::MatrixRows& scales, const Tables& tables,
                        std::uint64_t first_group, std::span<std::byte> out) const noexcept;
  /// The same of FP8 scales. `matrix_scales` are those of the halves where scale_of_matrix().
  /// Shapes: scales halves [rows of blocks, groups of k] or empty; out [n * scale_unit_bytes()].
  void make_scale_words(const layout::MatrixRows& scales, const std::array<float, 2>& matrix_scales,
                        std::uint64_t first_group, std::span<std::byte> out) const noexcept;
  /// What the words lose of FP8 scales; those of matrices count once a half.
  void count_word_losses(const layout::MatrixRows& scales,
                         const std::array<float, 2>& matrix_scales, LossCounts& losses) const;
  /// Makes a bias in the format of the activations.
  /// Shapes: bias halves [half_rows, 1]; out [2 * rows().rows()].
  void make_bias(const layout::MatrixRows& bias, formats::Format stored,
                 std::span<std::byte> out) const noexcept;

  /// What the scales are when they are read back: by rows and groups of k.
  formats::Encoding restored_encoding() const noexcept;
  /// Scale bytes of a row: E4M3 or E8M0, or f32 of FP8.
  /// Shapes: scales [groups() * scale_unit_bytes()]; out [groups of k, padding left away].
  void restore_scales(const layout::HalfRow& row, std::span<const std::byte> scales,
                      std::span<std::byte> out) const noexcept;
  /// Shapes: bias [2 * rows().rows()].
  float restore_bias(const layout::HalfRow& row, std::span<const std::byte> bias) const noexcept;

 private:
  MarlinMatrix(const layout::MarlinLayout& weights, const MarlinExtents& extents)
      : weights_(weights), extents_(extents) {}

  std::uint64_t stored_groups() const noexcept;
  float scale_at(const layout::MatrixRows& scales, const layout::HalfRow& row,
                 std::uint64_t group) const noexcept;

  layout::MarlinLayout weights_;
  MarlinExtents extents_;
  layout::RowOrder rows_;
  formats::Encoding encoding_;
  formats::Format scale_format_{};
  MarlinKernel kernel_;
  MarlinScaleRule rule_ = MarlinScaleRule::kNvfp4;
  layout::MarlinScaleOrder scale_columns_;
  std::uint64_t groups_ = 1;
};

/// The rule for an encoding's scales.
///
/// Errors: kUnsupported naming the encoding, with those that Marlin takes.
Result<MarlinScaleRule> marlin_scale_rule(const formats::Encoding& encoding);

}  // namespace lode::targets
