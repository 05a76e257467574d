#include "lode/targets/marlin_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "lode/base/fmt.h"
#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/f16.h"

namespace lode::targets {
namespace {

using formats::Encoding;
using formats::Format;

constexpr layout::MarlinScaleOrder kBiasOrder{layout::MarlinScaleMap::kSingle, false};
constexpr std::uint64_t kBiasBytes = 2;
constexpr std::uint8_t kSix = 6;  // that FP4 under 8-bit activations adds to an exponent

// Reads the number of 16 bits at `index`.
std::uint16_t word_at(std::span<const std::byte> words, std::uint64_t index) noexcept {
  std::uint16_t word = 0;
  std::memcpy(&word, words.data() + index * sizeof(word), sizeof(word));
  return word;
}

bool is_mx(const Encoding& encoding) noexcept {
  return encoding.scale == Format::kE8m0 && encoding.block_rows == 1 && encoding.block_k == 32 &&
         (encoding.element == Format::kE2m1 || encoding.element == Format::kE4m3);
}

bool is_nvfp4(const Encoding& encoding) noexcept {
  return encoding == formats::kNvfp4 || encoding == formats::kNvfp4Divisor;
}

bool is_fp8(const Encoding& encoding) noexcept {
  return encoding.element == Format::kE4m3 && encoding.has_scale &&
         encoding.scale != Format::kE4m3 &&
         (encoding.block_rows != formats::kWhole || encoding.block_k == formats::kWhole);
}

}  // namespace

Result<MarlinScaleRule> marlin_scale_rule(const Encoding& encoding) {
  if (is_nvfp4(encoding)) return MarlinScaleRule::kNvfp4;
  if (is_mx(encoding)) return MarlinScaleRule::kMx;
  if (is_fp8(encoding)) return MarlinScaleRule::kFp8;
  return Error{
      .code = Code::kUnsupported,
      .thing = "experts for Marlin kernels",
      .wanted = "NVFP4, MXFP4, MXFP8, or FP8 with scales of a matrix, of rows or of blocks",
      .found = std::string(formats::name(encoding))};
}

Result<MarlinMatrix> MarlinMatrix::make(const MarlinExtents& extents, const Encoding& encoding,
                                        Format scale_format, const MarlinKernel& kernel) {
  LODE_TRY(const MarlinScaleRule rule, marlin_scale_rule(encoding));
  const std::uint32_t bits = formats::info(encoding.element).bits;
  if (kernel.narrow_activations && (bits != 4 || rule != MarlinScaleRule::kMx)) {
    return Error{.code = Code::kUnsupported,
                 .thing = "Marlin kernels with 8-bit activations",
                 .wanted = "MXFP4 experts",
                 .found = std::string(formats::name(encoding))};
  }
  LODE_TRY(const layout::MarlinLayout weights,
           layout::MarlinLayout::make(extents.num_halves * extents.padded_half_rows,
                                      extents.padded_k, {bits, kernel.narrow_activations}));
  const std::uint64_t group = encoding.block_k;
  if (group != formats::kWhole && (extents.k % group != 0 || extents.padded_k % group != 0)) {
    return Error{.code = Code::kUnsupported,
                 .thing = "k of a matrix for Marlin kernels",
                 .wanted = fmt::format("whole groups of {}", group),
                 .found = fmt::format("{}, padded to {}", extents.k, extents.padded_k)};
  }
  MarlinMatrix matrix(weights, extents);
  matrix.rows_ = {
      extents.num_halves, extents.padded_half_rows,
      extents.in_turn ? layout::GateUpOrder::kGateUpInTurn : layout::GateUpOrder::kGateThenUp,
      layout::RowShuffle::kNone};
  matrix.encoding_ = encoding;
  matrix.scale_format_ = scale_format;
  matrix.kernel_ = kernel;
  matrix.rule_ = rule;
  matrix.groups_ = group == formats::kWhole ? 1 : extents.padded_k / group;
  matrix.scale_columns_ = {
      layout::marlin_scale_map(group, extents.padded_k, kernel.narrow_activations),
      rule != MarlinScaleRule::kFp8 && !kernel.narrow_activations};
  return matrix;
}

Format MarlinMatrix::scale_dtype() const noexcept {
  switch (rule_) {
    case MarlinScaleRule::kNvfp4:
      return Format::kE4m3;  // a container: the bytes are S0E5M3
    case MarlinScaleRule::kMx:
      return Format::kE8m0;
    case MarlinScaleRule::kFp8:
      return kernel_.activations;
  }
  return {};
}

std::uint64_t MarlinMatrix::stored_groups() const noexcept {
  return formats::scale_columns(encoding_, extents_.k);
}

std::uint64_t MarlinMatrix::weight_padding_bytes() const noexcept {
  const std::uint64_t codes = extents_.num_halves * extents_.half_rows * extents_.k;
  return weights_.total_bytes() - codes * weights_.shape().bits / 8;
}

std::uint64_t MarlinMatrix::scale_padding_bytes() const noexcept {
  const std::uint64_t scales = extents_.num_halves * extents_.half_rows * stored_groups();
  return groups_ * scale_unit_bytes() - scales * scale_bytes();
}

std::uint64_t MarlinMatrix::bias_padding_bytes() const noexcept {
  return (rows_.rows() - extents_.num_halves * extents_.half_rows) * kBiasBytes;
}

void MarlinMatrix::make_weights(const layout::MatrixRows& codes, std::uint64_t first_unit,
                                std::span<std::byte> out) const noexcept {
  layout::marlin_from_rows(weights_, rows_, codes, first_unit, out);
}

void MarlinMatrix::make_scale_bytes(const layout::MatrixRows& scales, const Tables& tables,
                                    std::uint64_t first_group,
                                    std::span<std::byte> out) const noexcept {
  layout::marlin_scale_bytes({scale_columns_, rows_, scales, tables}, first_group, out);
}

float MarlinMatrix::scale_at(const layout::MatrixRows& scales, const layout::HalfRow& row,
                             std::uint64_t group) const noexcept {
  const auto blocks = scales.row({row.half, row.row / encoding_.block_rows});
  return group < stored_groups() ? formats::number_at(scale_format_, blocks, group) : 0.0F;
}

void MarlinMatrix::make_scale_words(const layout::MatrixRows& scales,
                                    const std::array<float, 2>& matrix_scales,
                                    std::uint64_t first_group,
                                    std::span<std::byte> out) const noexcept {
  // Rows of one block lie together: its word is made once.
  struct BlockWord {
    std::uint64_t block = ~std::uint64_t{0};
    std::uint16_t word = 0;
  };
  for (std::uint64_t i = 0; i < out.size() / scale_unit_bytes(); ++i) {
    std::array<BlockWord, 2> last;
    const auto number = [&](const layout::HalfRow& row) -> std::uint16_t {
      if (row.row >= extents_.half_rows) return 0;
      BlockWord& made = last[row.half];
      const std::uint64_t block = scale_of_matrix() ? 0 : row.row / encoding_.block_rows;
      if (made.block == block) return made.word;
      const float scale =
          scale_of_matrix() ? matrix_scales[row.half] : scale_at(scales, row, first_group + i);
      made = {block, layout::fp8_marlin_scale(scale, kernel_.activations)};
      return made.word;
    };
    layout::marlin_row_of_words(scale_columns_, rows_, number,
                                out.subspan(i * scale_unit_bytes(), scale_unit_bytes()));
  }
}

void MarlinMatrix::count_word_losses(const layout::MatrixRows& scales,
                                     const std::array<float, 2>& matrix_scales,
                                     LossCounts& losses) const {
  const auto count = [&](float scale) {
    const std::uint16_t word = layout::fp8_marlin_scale(scale, kernel_.activations);
    const float held = layout::scale_of_fp8_marlin(word, kernel_.activations);
    if (held == scale) return;
    losses.add(!std::isfinite(held) ? Loss::kOverflowedScales
               : held == 0.0F       ? Loss::kFlushedScales
                                    : Loss::kNarrowedScales,
               1);
  };
  for (std::uint32_t half = 0; half < rows_.num_halves; ++half) {
    if (scale_of_matrix()) count(matrix_scales[half]);
    for (std::uint64_t row = 0; row < scales.half_rows; ++row) {
      const auto blocks = scales.row({half, row});
      for (std::uint64_t i = 0; i < stored_groups() && !blocks.empty(); ++i) {
        count(formats::number_at(scale_format_, blocks, i));
      }
    }
  }
}

void MarlinMatrix::make_bias(const layout::MatrixRows& bias, Format stored,
                             std::span<std::byte> out) const noexcept {
  const auto number = [&](const layout::HalfRow& row) -> std::uint16_t {
    if (row.row >= bias.half_rows) return 0;  // fewer than the weights' where those were padded
    const auto bytes = bias.row(row);
    if (stored == kernel_.activations) return word_at(bytes, 0);
    const float value = formats::number_at(stored, bytes, 0);
    return kernel_.activations == Format::kF16 ? formats::encode_f16(value)
                                               : formats::encode_bf16(value);
  };
  layout::marlin_row_of_words(kBiasOrder, rows_, number, out);
}

Encoding MarlinMatrix::restored_encoding() const noexcept {
  Encoding restored = encoding_;
  if (rule_ == MarlinScaleRule::kNvfp4) restored = formats::kNvfp4;
  if (rule_ == MarlinScaleRule::kFp8) {
    restored.scale = Format::kF32;
    restored.block_rows = 1;
  }
  return restored;
}

void MarlinMatrix::restore_scales(const layout::HalfRow& row, std::span<const std::byte> scales,
                                  std::span<std::byte> out) const noexcept {
  const std::uint64_t column = scale_columns_.column_of(rows_.position_of(row));
  for (std::uint64_t group = 0; group < stored_groups(); ++group) {
    const auto unit = scales.subspan(group * scale_unit_bytes(), scale_unit_bytes());
    if (rule_ == MarlinScaleRule::kFp8) {
      const float scale = layout::scale_of_fp8_marlin(word_at(unit, column), kernel_.activations);
      std::memcpy(out.data() + group * sizeof(scale), &scale, sizeof(scale));
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(unit[column]);
    const bool more = kernel_.narrow_activations && byte >= kSix && byte != 0xFF;
    out[group] = static_cast<std::byte>(rule_ == MarlinScaleRule::kNvfp4
                                            ? layout::e4m3_of_s0e5m3(byte)
                                            : static_cast<std::uint8_t>(more ? byte - kSix : byte));
  }
}

float MarlinMatrix::restore_bias(const layout::HalfRow& row,
                                 std::span<const std::byte> bias) const noexcept {
  const std::uint16_t word = word_at(bias, kBiasOrder.column_of(rows_.position_of(row)));
  return kernel_.activations == Format::kF16 ? formats::decode_f16(word)
                                             : formats::decode_bf16(word);
}

}  // namespace lode::targets
