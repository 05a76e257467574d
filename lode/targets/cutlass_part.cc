#include "lode/targets/cutlass_part.h"

#include <algorithm>
#include <cstring>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/e4m3.h"
#include "lode/layout/block_major.h"
#include "lode/layout/nvfp4_reconcile.h"
#include "lode/targets/fp8_tensor.h"

namespace lode::targets {
namespace {

using formats::CodeMap;
using layout::OrderedRows;

// Rows that are shorter are one unit together: a bias is.
constexpr std::uint64_t kLeastUnitBytes = 64;

/// What becomes of every byte of gate's half and of up's.
struct ByteMaps {
  std::array<CodeMap, 2> maps;
  std::array<bool, 2> used{};

  void times(std::uint32_t half, float factor) noexcept {
    used[half] = true;
    for (std::size_t code = 0; code < 256; ++code) {
      maps[half].of[code] =
          formats::encode_e4m3(formats::decode_e4m3(static_cast<std::uint8_t>(code)) * factor);
    }
  }
};

bool is_gate_up(const Part& part) noexcept { return part.tensor.needs.gate_up_scales; }

float scale_of(const std::vector<float>& scales, const PartRequest& request) noexcept {
  return scales.empty() ? 1.0F : scales[request.expert_idx];
}
float up_scale(const PartRequest& request) noexcept {
  const LayerScalars& scalars = request.scalars;
  return scale_of(scalars.up_scale.empty() ? scalars.gate_scale : scalars.up_scale, request);
}

void fold(const Part& part, const PartRequest& request, ByteMaps& maps) noexcept {
  const LayerScalars& scalars = request.scalars;
  if (!is_gate_up(part)) {
    maps.times(0, scale_of(scalars.down_scale, request));
    return;
  }
  maps.times(0, scale_of(scalars.gate_scale, request));
  if (request.shape.gated) maps.times(1, up_scale(request));
}

void find_maps(const Part& part, const PartRequest& request, ByteMaps& maps) noexcept {
  if (part.numbers == PartNumbers::kFolded) fold(part, request, maps);
  if (!request.shape.gated) return;
  if (part.numbers == PartNumbers::kOneNvfp4Scale) {
    const layout::CommonScale common =
        layout::common_scale(scale_of(request.scalars.gate_scale, request), up_scale(request));
    for (const std::uint32_t half : {0U, 1U}) {
      if (common.ratio(half) != 1.0F) maps.times(half, common.ratio(half));
    }
  }
  if (part.numbers == PartNumbers::kOneFp8Scale) {
    const OneScale one = one_scale(request.shape, request.scalars, request.expert_idx);
    if (one.changes) maps = {one.maps, {true, true}};
  }
}

float turned(const Part& part, float value) noexcept {
  return part.numbers == PartNumbers::kClamped && value < kLeastBlockScale ? kLeastBlockScale
                                                                           : value;
}

/// Rows of numbers in another format than they are stored in.
void numbers_into(const Part& part, const OrderedRows& from, std::uint64_t first_row,
                  std::span<std::byte> out) noexcept {
  const std::uint64_t width = part.numbers == PartNumbers::kToBf16 ? 2 : sizeof(float);
  const std::uint64_t columns = part.row_bytes / width;
  for (std::uint64_t idx = 0; idx < out.size() / width; ++idx) {
    const auto row = from.rows.row(from.order.at(first_row + idx / columns));
    const float stored = row.empty() ? 0.0F : formats::number_at(part.stored, row, idx % columns);
    const float value = turned(part, stored);
    const std::uint16_t code = formats::encode_bf16(value);
    std::memcpy(out.data() + idx * width,
                width == 2 ? static_cast<const void*>(&code) : static_cast<const void*>(&value),
                width);
  }
}

void tiles_into(const Part& part, const OrderedRows& from, std::uint64_t first_unit,
                std::span<std::byte> out) noexcept {
  switch (part.tile) {
    case PartTile::kRows:
      layout::ordered_rows_into(from, first_unit, out);
      return;
    case PartTile::kScaleTiles:
      layout::block_scales_into(from, part.scale_tile, first_unit, out);
      return;
    case PartTile::kBlockMajor:
      layout::block_major_into(from, first_unit, out);
      return;
    case PartTile::kSm90Codes:
      layout::sm90_codes_into(from, part.sm90, first_unit, out);
      return;
  }
}

bool turns_numbers(const Part& part) noexcept {
  return part.numbers == PartNumbers::kToF32 || part.numbers == PartNumbers::kToBf16 ||
         part.numbers == PartNumbers::kClamped;
}

std::byte restored_sm90_byte(const Part& part, std::uint64_t position, std::uint64_t column,
                             std::span<const std::byte> expert) noexcept {
  std::uint32_t value = 0;
  for (std::uint32_t bit = 0; bit < 8; ++bit) {
    const layout::BitPlace at = layout::sm90_place(part.sm90, {position, column, bit});
    const auto byte = std::to_integer<std::uint32_t>(expert[at.row * part.row_bytes + at.column]);
    value |= (byte >> at.bit & 1U) << bit;
  }
  return static_cast<std::byte>(value);
}

}  // namespace

std::uint64_t part_bytes(const Part& part) noexcept {
  if (part.scalar != nullptr) return sizeof(float);
  const std::uint64_t rows = part.tile == PartTile::kScaleTiles
                                 ? align_up(part.order.rows(), part.scale_tile.rows)
                                 : part.order.rows();
  return rows * part.row_bytes;
}

std::uint64_t part_unit_bytes(const Part& part) noexcept {
  if (part.scalar != nullptr) return sizeof(float);
  switch (part.tile) {
    case PartTile::kRows:
      return part.row_bytes < kLeastUnitBytes ? part_bytes(part) : part.row_bytes;
    case PartTile::kScaleTiles:
      return part.scale_tile.rows * part.row_bytes;
    case PartTile::kBlockMajor:
      return part.order.rows() * layout::kBlockMajorBytes;
    case PartTile::kSm90Codes:
      return layout::kSm90TileRows * part.row_bytes;
  }
  return 0;
}

SourceWindow part_window(const Part& part, std::uint32_t code_bits, std::uint64_t first_unit,
                         std::uint64_t num_units) noexcept {
  const bool is_codes = part.rows == &ExpertSource::gate_up || part.rows == &ExpertSource::down;
  if (part.scalar != nullptr || !is_codes) return {};
  if (part.tile == PartTile::kBlockMajor) {
    const std::uint64_t numbers = layout::kBlockMajorBytes * 8 / code_bits;
    return {.k = {first_unit * numbers, (first_unit + num_units) * numbers}};
  }
  const std::uint64_t unit_rows = part.tensor.unit_bytes / part.row_bytes;
  return {.rows = layout::rows_within(part.order, first_unit * unit_rows,
                                      (first_unit + num_units) * unit_rows)};
}

void make_part(const Part& part, const PartRequest& request, std::uint64_t first_unit,
               std::span<std::byte> out) noexcept {
  if (part.scalar != nullptr) {
    const float value = part.scalar(request.shape, request.scalars, request.expert_idx);
    std::memcpy(out.data(), &value, sizeof value);
    return;
  }
  ByteMaps maps;
  find_maps(part, request, maps);
  OrderedRows from{request.source.*part.rows, part.order, part.row_bytes, part.padding, {}};
  for (const std::size_t half : {0U, 1U}) {
    if (maps.used[half]) from.byte_maps[half] = &maps.maps[half];
  }
  if (turns_numbers(part)) {
    numbers_into(part, from, first_unit, out);
  } else {
    tiles_into(part, from, first_unit, out);
  }
}

void restore_part_row(const Part& part, const layout::HalfRow& row,
                      std::span<const std::byte> expert, std::span<std::byte> out) noexcept {
  const std::uint64_t position = part.order.position_of(row);
  if (part.tile == PartTile::kRows) {
    std::memcpy(out.data(), expert.data() + position * part.row_bytes, out.size());
    return;
  }
  const layout::BlockScales scales{part.scale_tile, part.order.rows(), part.row_bytes};
  for (std::uint64_t column = 0; column < out.size(); ++column) {
    switch (part.tile) {
      case PartTile::kRows:
        break;
      case PartTile::kScaleTiles:
        out[column] = expert[scales.offset(position, column)];
        break;
      case PartTile::kBlockMajor:
        out[column] = expert[layout::block_major_offset(part.order.rows(), position, column)];
        break;
      case PartTile::kSm90Codes:
        out[column] = restored_sm90_byte(part, position, column, expert);
        break;
    }
  }
}

}  // namespace lode::targets
