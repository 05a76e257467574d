#include "lode/layout/gptq_words.h"

#include <algorithm>
#include <cstring>

namespace lode::layout {
namespace {

constexpr std::uint64_t kWordBytes = 4;
constexpr std::uint64_t kBlock = 16;  // words of a line: what is read is read whole

}  // namespace

void transpose_words(std::span<const std::byte> words, std::uint64_t rows, std::uint64_t columns,
                     std::span<std::byte> out) noexcept {
  for (std::uint64_t begin = 0; begin < columns; begin += kBlock) {
    const std::uint64_t end = std::min(columns, begin + kBlock);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::byte* const from = words.data() + row * columns * kWordBytes;
      for (std::uint64_t column = begin; column < end; ++column) {
        std::memcpy(out.data() + (column * rows + row) * kWordBytes, from + column * kWordBytes,
                    kWordBytes);
      }
    }
  }
}

void take_in_order(std::span<const std::byte> row, std::uint32_t bits,
                   std::span<const std::uint32_t> order, std::span<std::byte> out) noexcept {
  const std::uint32_t mask = (1U << bits) - 1U, per_byte = 8 / bits;
  std::ranges::fill(out, std::byte{0});
  for (std::uint64_t k = 0; k < order.size(); ++k) {
    const std::uint32_t from = order[k];
    const auto byte = static_cast<std::uint32_t>(row[from / per_byte]);
    const std::uint32_t code = byte >> (from % per_byte * bits) & mask;
    out[k / per_byte] |= static_cast<std::byte>(code << (k % per_byte * bits));
  }
}

}  // namespace lode::layout
