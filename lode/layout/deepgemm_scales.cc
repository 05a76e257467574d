#include "lode/layout/deepgemm_scales.h"

#include <algorithm>
#include <cstring>

namespace lode::layout {

void deepgemm_scales_into(const DeepgemmScales& layout, const RowOrder& order,
                          const MatrixRows& scales, std::uint64_t first,
                          std::span<std::byte> out) noexcept {
  std::ranges::fill(out, std::byte{0});
  const std::uint64_t count = out.size() / layout.word_row_bytes();
  for (std::uint64_t row = 0; row < layout.rows; ++row) {
    HalfRow at = order.at(row);
    at.row /= layout.block_rows;
    const std::span<const std::byte> exponents = scales.row(at);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t column = (first + i) * DeepgemmScales::kWordBytes;
      if (column >= exponents.size()) break;
      const std::uint64_t known = std::min(DeepgemmScales::kWordBytes, exponents.size() - column);
      std::memcpy(out.data() + i * layout.word_row_bytes() + row * DeepgemmScales::kWordBytes,
                  exponents.data() + column, known);
    }
  }
}

void unpack_deepgemm_row(const DeepgemmScales& layout, std::span<const std::byte> packed,
                         std::uint64_t row, std::span<std::byte> out) noexcept {
  for (std::uint64_t column = 0; column < layout.columns; ++column) {
    out[column] = packed[layout.offset(row, column)];
  }
}

}  // namespace lode::layout
