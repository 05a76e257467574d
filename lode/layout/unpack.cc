#include "lode/layout/unpack.h"

#include <array>
#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/block_scale.h"
#include "lode/formats/dequantise.h"

namespace lode::layout {
namespace {

// The multiplier of one block: formed first, rounded once.
float multiplier(const PanelLayout& layout, std::span<const std::byte> scale, float whole) {
  if (layout.shape().kind == kernels::PanelKind::kMxfp4) {
    return formats::mx_multiplier(std::to_integer<std::uint8_t>(scale[0]));
  }
  if (layout.shape().kind == kernels::PanelKind::kNvfp4) {
    const auto code = std::to_integer<std::uint8_t>(scale[0]);
    return layout.encoding().tensor_scale == formats::TensorScale::kDivisor
               ? formats::nvfp4_divided_multiplier(code, whole)
               : formats::nvfp4_multiplier(code, whole);
  }
  float value = 0.0F;
  std::memcpy(&value, scale.data(), sizeof value);
  return value;
}

}  // namespace

void unpack_codes(const PanelLayout& layout, std::uint32_t matrix,
                  std::span<const std::byte> panels, std::span<std::byte> out) {
  const std::uint32_t bits = layout.shape().bits;
  const std::uint64_t row_bytes = (layout.k() * bits + 7) / 8;
  LODE_CHECK(out.size() == layout.rows() * row_bytes, "out holds the matrix without padding");
  const std::uint64_t codes_per_byte = bits < 8 ? 8 / bits : 1;
  const std::uint64_t code_bytes = bits < 8 ? 1 : bits / 8;
  for (std::uint64_t row = 0; row < layout.rows(); ++row) {
    for (std::uint64_t k = 0; k < layout.k(); k += codes_per_byte) {
      const std::uint64_t from = layout.code(matrix, row, k).offset_bytes;
      std::memcpy(out.data() + row * row_bytes + k * bits / 8, panels.data() + from, code_bytes);
    }
  }
}

void unpack_scales(const PanelLayout& layout, std::uint32_t matrix,
                   std::span<const std::byte> panels, std::span<std::byte> out) {
  const std::uint64_t bytes = layout.shape().scale_bytes;
  const std::uint64_t groups = layout.shape().groups(layout.k());
  LODE_CHECK(out.size() == layout.rows() * groups * bytes, "out holds every scale once");
  for (std::uint64_t row = 0; row < layout.rows(); ++row) {
    for (std::uint64_t group = 0; group < groups; ++group) {
      std::memcpy(out.data() + (row * groups + group) * bytes,
                  panels.data() + layout.scale_offset(matrix, row, group), bytes);
    }
  }
}

float matrix_scale(const PanelLayout& layout, std::uint32_t matrix,
                   std::span<const std::byte> panels) noexcept {
  float value = 1.0F;
  if (!layout.has_matrix_scales()) return value;
  std::memcpy(&value, panels.data() + layout.matrix_scale_offset(matrix), sizeof value);
  return value;
}

void decode_panel_row(const PanelLayout& layout, std::uint32_t matrix,
                      std::span<const std::byte> panels, std::uint64_t row, std::span<float> out) {
  LODE_CHECK(out.size() == layout.k(), "out holds one row");
  const kernels::PanelShape& shape = layout.shape();
  const float whole = matrix_scale(layout, matrix, panels);
  const std::uint64_t code_bytes = shape.bits < 8 ? 1 : shape.bits / 8;
  for (std::uint64_t k = 0; k < layout.k(); ++k) {
    const CodePlace place = layout.code(matrix, row, k);
    const auto code = panels.subspan(place.offset_bytes, code_bytes);
    const std::uint64_t index = place.shift_bits == 0 ? 0 : 1;
    out[k] = formats::number_at(layout.encoding().element, code, index);
    if (shape.scale_bytes == 0) continue;
    const std::uint64_t at = layout.scale_offset(matrix, row, k / shape.group_k);
    out[k] *= multiplier(layout, panels.subspan(at, shape.scale_bytes), whole);
  }
}

}  // namespace lode::layout
