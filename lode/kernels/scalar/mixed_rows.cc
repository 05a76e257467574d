#include "lode/kernels/scalar/mixed_rows.h"

namespace lode::kernels::scalar {
namespace {

// Bit of a word that each bit of the four bytes x0 to x3 goes to.
constexpr std::uint8_t kWordBits[4][8] = {{6, 7, 8, 15, 22, 23, 24, 31},
                                          {3, 4, 5, 12, 19, 20, 21, 28},
                                          {0, 1, 2, 9, 16, 17, 18, 25},
                                          {13, 10, 11, 14, 29, 26, 27, 30}};

std::uint32_t byte_at(const MixedRows& rows, const std::byte* row, std::size_t at) noexcept {
  return row == nullptr || at >= rows.source_bytes ? 0 : static_cast<std::uint32_t>(row[at]);
}

std::uint32_t word_of(const std::uint32_t (&sources)[4]) noexcept {
  std::uint32_t word = 0;
  for (std::size_t source = 0; source < 4; ++source) {
    for (std::uint32_t bit = 0; bit < 8; ++bit) {
      word |= (sources[source] >> bit & 1U) << kWordBits[source][bit];
    }
  }
  return word;
}

}  // namespace

// Byte c of a tile's 32 is t + 4q + 8p + 16g. What is made of it goes to the row that p says, to
// the word 4g + t.
void mix_rows(const MixedRows& rows) noexcept {
  for (std::size_t c = 0; c < rows.out_bytes; ++c) {
    if (c % 8 >= 4) continue;
    const std::uint32_t sources[4] = {byte_at(rows, rows.upper, c), byte_at(rows, rows.lower, c),
                                      byte_at(rows, rows.upper, c + 4),
                                      byte_at(rows, rows.lower, c + 4)};
    std::uint32_t word = word_of(sources);
    if (rows.order == MixedOrder::kNibblePairs) {
      word = (sources[0] & 15U) | (sources[1] & 15U) << 4 | (sources[0] >> 4) << 8 |
             (sources[1] >> 4) << 12 | (sources[2] & 15U) << 16 | (sources[3] & 15U) << 20 |
             (sources[2] >> 4) << 24 | (sources[3] >> 4) << 28;
    }
    std::byte* const out = c % 16 < 8 ? rows.upper_out : rows.lower_out;
    const std::size_t at = c / 16 * 16 + 4 * (c % 4);
    for (std::size_t i = 0; i < 4; ++i) out[at + i] = static_cast<std::byte>(word >> (8 * i));
  }
}

}  // namespace lode::kernels::scalar
