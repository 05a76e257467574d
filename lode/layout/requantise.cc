#include "lode/layout/requantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/dequantise.h"

namespace lode::layout {
namespace {

using kernels::kSuperBlockK;

// Adding and taking away 1.5 * 2^23 rounds to nearest even: exact for |x| < 2^22.
constexpr float kRoundingMagic = 12582912.0F;

float largest_magnitude(std::span<const float> numbers) noexcept {
  float largest = 0.0F;
  for (const float number : numbers) {
    const float magnitude = std::fabs(number);
    // A NaN must win, so that it is seen.
    largest = magnitude > largest || std::isnan(magnitude) ? magnitude : largest;
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

struct Row128 {
  std::array<std::int8_t, kSuperBlockK> codes{};
  float scale = 0.0F;
};

Row128 quantise(std::span<const float> numbers, float largest) noexcept {
  Row128 row;
  row.scale = largest / 127.0F;
  if (row.scale == 0.0F) return row;  // below the smallest number: zeros
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float scaled = std::clamp(numbers[i] / row.scale, -127.0F, 127.0F);
    row.codes[i] = static_cast<std::int8_t>((scaled + kRoundingMagic) - kRoundingMagic);
  }
  return row;
}

}  // namespace

void decode_source_row(const SourceRow& from, std::span<float> out) noexcept {
  const std::uint32_t bits = formats::info(from.encoding.element).bits;
  LODE_CHECK(bits >= 8, "rows of whole bytes a code");
  const std::uint64_t unit = bits / 8;
  const SourceCodes& codes = from.codes;
  const std::uint64_t step = codes.k_first ? codes.outer_stride_bytes : unit;
  std::uint64_t position = codes.k_first
                               ? from.tile_k * step + from.tile_row * codes.inner_step_bytes
                               : from.tile_row * codes.outer_stride_bytes + from.tile_k * step;
  for (float& number : out) {
    number = formats::number_at(from.encoding.element, codes.bytes.subspan(position, unit), 0);
    position += step;
  }
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
  std::array<float, kSuperBlockK> numbers;
  for (std::uint64_t row = tile.row_begin; row < tile.row_end; ++row) {
    for (std::uint64_t k = tile.k_begin; k < tile.k_end; k += kSuperBlockK) {
      const std::uint64_t count = std::min<std::uint64_t>(kSuperBlockK, tile.k_end - k);
      const std::span<float> out = std::span(numbers).first(count);
      decode_source_row({encoding, source, scales, row - tile.row_begin, k - tile.k_begin, row, k},
                        out);
      const float largest = largest_magnitude(out);
      if (!std::isfinite(largest)) return false;
      const Row128 quantised = quantise(out, largest);
      for (std::uint64_t i = 0; i < count; i += layout.shape().k_per_line()) {
        const std::uint64_t at = layout.code(tile.matrix, row, k + i).offset_bytes;
        std::memcpy(panels.data() + at, quantised.codes.data() + i, sizeof(std::uint32_t));
      }
      std::memcpy(panels.data() + layout.scale_offset(tile.matrix, row, k / kSuperBlockK),
                  &quantised.scale, sizeof quantised.scale);
    }
  }
  return true;
}

}  // namespace lode::layout
