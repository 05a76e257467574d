#include "lode/layout/requantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/dequantise.h"
#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

using kernels::kPanelRows;
using kernels::kSuperBlockK;

// 16 rows are made int8 a piece of k at a time, then put to their lines: a row's numbers stay in
// the nearest cache between the steps, and 1024 of them are a read that the machine runs ahead of.
constexpr std::uint64_t kPieceBlocks = 8;
constexpr std::uint64_t kPieceK = kPieceBlocks * kSuperBlockK;

class Requantiser {
 public:
  Requantiser(const PanelLayout& layout, const PanelTile& tile, const formats::Encoding& encoding,
              const SourceCodes& source, const SourceScales* scales, std::span<std::byte> panels)
      : layout_(layout),
        tile_(tile),
        encoding_(encoding),
        source_(source),
        scales_(scales),
        panels_(panels) {}

  bool run() noexcept {
    for (std::uint64_t row = tile_.row_begin; row < tile_.row_end; row += kPanelRows) {
      for (std::uint64_t k = tile_.k_begin; k < tile_.k_end; k += kPieceK) {
        if (!piece(row, k, std::min(k + kPieceK, tile_.k_end))) return false;
      }
    }
    return true;
  }

 private:
  // 16 rows, or the last fewer, of [k, end).
  bool piece(std::uint64_t row, std::uint64_t k, std::uint64_t end) noexcept {
    const std::uint64_t num_rows = std::min<std::uint64_t>(kPanelRows, tile_.row_end - row);
    lines_ = {};
    for (std::uint64_t i = 0; i < num_rows; ++i) {
      const auto numbers = std::span(numbers_).first(end - k);
      decode(row + i, k, numbers);
      if (!quantise(numbers, row + i, k)) return false;
    }
    const std::uint64_t offset = layout_.panel_offset(tile_.matrix, row / kPanelRows) +
                                 layout_.super_block_offset(k / kSuperBlockK);
    table_.rows_to_lines({.shape = layout_.shape(),
                          .source = std::as_bytes(std::span(codes_)).data(),
                          .outer_stride_bytes = kPieceK,
                          .num_rows = num_rows,
                          .k = end - k,
                          .panels = panels_.data() + offset,
                          .panel_stride_bytes = layout_.panel_stride_bytes()});
    const std::uint64_t first_group = k / kSuperBlockK;
    for (std::uint64_t i = 0; i * kSuperBlockK < end - k; ++i) {
      std::memcpy(panels_.data() + layout_.scale_offset(tile_.matrix, row, first_group + i),
                  lines_[i].data(), sizeof lines_[i]);
    }
    return true;
  }

  // To codes_ and lines_; false if a number is not finite.
  bool quantise(std::span<const float> numbers, std::uint64_t row, std::uint64_t k) noexcept {
    const std::uint64_t row_in_panel = row % kPanelRows;
    float factor = 1.0F;
    std::uint64_t column = ~std::uint64_t{0};
    for (std::uint64_t at = 0; at < numbers.size(); at += kSuperBlockK) {
      const std::uint64_t count = std::min<std::uint64_t>(kSuperBlockK, numbers.size() - at);
      ask_for(row + 1, k + at, count);
      if (one_scale_a_block_) {
        const BlockPlace block = block_of(encoding_, *scales_, row, k + at);
        if (block.column != column) factor = scale_of(block);
        column = block.column;
      }
      const float scale = table_.quantise_i8(numbers.data() + at, factor, count,
                                             codes_.data() + row_in_panel * kPieceK + at);
      if (std::isnan(scale)) return false;
      lines_[at / kSuperBlockK][row_in_panel] = scale;
    }
    return true;
  }

  // Numbers of the next row, bit by bit while this one is worked on: rows are too short for the
  // machine to run ahead of them. They may lie beyond the source, which is no fault.
  void ask_for(std::uint64_t row, std::uint64_t k, std::uint64_t count) const noexcept {
    if (source_.k_first) return;
    const std::uint64_t unit = formats::info(encoding_.element).bits / 8;
    const std::byte* const from = source_.bytes.data() +
                                  (row - tile_.row_begin) * source_.outer_stride_bytes +
                                  (k - tile_.k_begin) * unit;
    for (std::uint64_t at = 0; at < count * unit; at += kernels::kLineBytes) {
      __builtin_prefetch(from + at, 0, 2);
    }
  }

  // The matrix's numbers [k, k + out.size()) of a row.
  void decode(std::uint64_t row, std::uint64_t k, std::span<float> out) const noexcept {
    const std::uint32_t bits = formats::info(encoding_.element).bits;
    LODE_CHECK(bits >= 8, "rows of whole bytes a code");
    const std::uint64_t unit = bits / 8;
    const std::uint64_t row_step =
        source_.k_first ? source_.inner_step_bytes : source_.outer_stride_bytes;
    const std::uint64_t k_step = source_.k_first ? source_.outer_stride_bytes : unit;
    const std::uint64_t at = (row - tile_.row_begin) * row_step + (k - tile_.k_begin) * k_step;
    LODE_CHECK(at + (out.size() - 1) * k_step + unit <= source_.bytes.size(),
               "a tile's source is shorter than the tile");
    table_.widen(encoding_.element, source_.bytes.data() + at, k_step, out.size(), out.data());
    if (scales_ != nullptr && !one_scale_a_block_) apply_scales(row, k, out);
  }

  float scale_of(const BlockPlace& block) const noexcept {
    const std::uint64_t bytes = formats::info(scales_->format).bits / 8;
    return formats::number_at(scales_->format,
                              scales_->bytes.subspan(scale_position(*scales_, block), bytes), 0);
  }

  void apply_scales(std::uint64_t row, std::uint64_t k, std::span<float> out) const noexcept {
    for (std::size_t i = 0; i < out.size();) {
      const BlockPlace block = block_of(encoding_, *scales_, row, k + i);
      const float scale = scale_of(block);
      const std::uint64_t next = (block.column + 1) * encoding_.block_k - k;
      const std::size_t end = std::min<std::uint64_t>(next, out.size());
      for (; i < end; ++i) out[i] *= scale;
    }
  }

  const kernels::KernelTable& table_ = kernels::active_or_plainest();
  const PanelLayout& layout_;
  const PanelTile& tile_;
  const formats::Encoding& encoding_;
  const SourceCodes& source_;
  const SourceScales* scales_;
  std::span<std::byte> panels_;
  // No super-block of a row has two scales: they are multiplied with where int8 is made.
  const bool one_scale_a_block_ = scales_ != nullptr && (encoding_.block_k == formats::kWhole ||
                                                         encoding_.block_k % kSuperBlockK == 0);
  // On lines' boundaries: registers are as wide.
  alignas(kernels::kLineBytes) std::array<float, kPieceK> numbers_;                   // of one row
  alignas(kernels::kLineBytes) std::array<std::int8_t, kPanelRows * kPieceK> codes_;  // of all
  std::array<std::array<float, kPanelRows>, kPieceBlocks> lines_{};                   // of scales
};

}  // namespace

bool requantise_to_int8(const PanelLayout& layout, const PanelTile& tile,
                        const formats::Encoding& encoding, const SourceCodes& source,
                        const SourceScales* scales, std::span<std::byte> panels) noexcept {
  LODE_CHECK(layout.encoding() == formats::kInt8Row128, "requantised matrices are kInt8Row128");
  LODE_CHECK(panels.size() >= layout.total_bytes(), "the panels are smaller than their layout");
  return Requantiser(layout, tile, encoding, source, scales, panels).run();
}

}  // namespace lode::layout
