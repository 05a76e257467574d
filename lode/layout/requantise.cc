#include "lode/layout/requantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/kernels_in_use.h"

namespace lode::layout {
namespace {

using kernels::kPanelRows;
using kernels::kSuperBlockK;

// Codes of 16 rows that are put to their lines at once.
constexpr std::uint64_t kPieceK = 8 * kSuperBlockK;

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

  // 16 rows, or the last fewer, of [k, end).
  bool piece(std::uint64_t row, std::uint64_t k, std::uint64_t end) noexcept {
    const std::uint64_t num_rows = std::min<std::uint64_t>(kPanelRows, tile_.row_end - row);
    for (std::uint64_t at = k; at < end; at += kSuperBlockK) {
      const std::uint64_t count = std::min<std::uint64_t>(kSuperBlockK, end - at);
      if (!block(row, num_rows, at, count, at - k)) return false;
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
    return true;
  }

 private:
  // One super-block: codes to codes_ from `column` on, scales to their line.
  bool block(std::uint64_t row, std::uint64_t num_rows, std::uint64_t k, std::uint64_t count,
             std::uint64_t column) noexcept {
    std::array<float, kPanelRows> line{};
    std::array<float, kSuperBlockK> numbers;
    for (std::uint64_t i = 0; i < num_rows; ++i) {
      decode_source_row(
          {encoding_, source_, scales_, row + i - tile_.row_begin, k - tile_.k_begin, row + i, k},
          std::span(numbers).first(count));
      line[i] = table_.quantise_i8(numbers.data(), count, codes_.data() + i * kPieceK + column);
      if (std::isnan(line[i])) return false;
    }
    std::memcpy(panels_.data() + layout_.scale_offset(tile_.matrix, row, k / kSuperBlockK),
                line.data(), sizeof line);
    return true;
  }

  const kernels::KernelTable& table_ = kernels_in_use();
  const PanelLayout& layout_;
  const PanelTile& tile_;
  const formats::Encoding& encoding_;
  const SourceCodes& source_;
  const SourceScales* scales_;
  std::span<std::byte> panels_;
  std::array<std::int8_t, kPanelRows * kPieceK> codes_;  // written before it is read
};

// The matrix's numbers [k, k + out.size()) of one row, before their scales.
void widen_row(const kernels::KernelTable& table, const SourceRow& from,
               std::span<float> out) noexcept {
  const std::uint32_t bits = formats::info(from.encoding.element).bits;
  LODE_CHECK(bits >= 8, "rows of whole bytes a code");
  const std::uint64_t unit = bits / 8;
  const SourceCodes& codes = from.codes;
  const std::uint64_t step = codes.k_first ? codes.outer_stride_bytes : unit;
  const std::uint64_t position =
      codes.k_first ? from.tile_k * step + from.tile_row * codes.inner_step_bytes
                    : from.tile_row * codes.outer_stride_bytes + from.tile_k * step;
  LODE_CHECK(position + (out.size() - 1) * step + unit <= codes.bytes.size(),
             "a tile's source is shorter than the tile");
  table.widen(from.encoding.element, codes.bytes.data() + position, step, out.size(), out.data());
}

}  // namespace

void decode_source_row(const SourceRow& from, std::span<float> out) noexcept {
  widen_row(kernels_in_use(), from, out);
  if (from.scales == nullptr) return;
  const SourceScales& scales = *from.scales;
  const std::uint64_t bytes = formats::info(scales.format).bits / 8;
  for (std::size_t i = 0; i < out.size();) {
    const BlockPlace block = block_of(from.encoding, scales, from.row, from.k + i);
    const std::uint64_t at = scale_position(scales, block);
    const float scale = formats::number_at(scales.format, scales.bytes.subspan(at, bytes), 0);
    const std::uint64_t next = from.encoding.block_k == formats::kWhole
                                   ? out.size()
                                   : (block.column + 1) * from.encoding.block_k - from.k;
    for (; i < std::min<std::uint64_t>(next, out.size()); ++i) out[i] *= scale;
  }
}

bool requantise_to_int8(const PanelLayout& layout, const PanelTile& tile,
                        const formats::Encoding& encoding, const SourceCodes& source,
                        const SourceScales* scales, std::span<std::byte> panels) noexcept {
  LODE_CHECK(layout.encoding() == formats::kInt8Row128, "requantised matrices are kInt8Row128");
  LODE_CHECK(panels.size() >= layout.total_bytes(), "the panels are smaller than their layout");
  Requantiser requantiser(layout, tile, encoding, source, scales, panels);
  for (std::uint64_t row = tile.row_begin; row < tile.row_end; row += kPanelRows) {
    for (std::uint64_t k = tile.k_begin; k < tile.k_end; k += kPieceK) {
      if (!requantiser.piece(row, k, std::min(k + kPieceK, tile.k_end))) return false;
    }
  }
  return true;
}

}  // namespace lode::layout
