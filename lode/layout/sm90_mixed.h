#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lode/layout/block_scales.h"
#include "lode/layout/row_shuffle.h"

namespace lode::layout {

//   FP4 for the SM90 kernels of 16-bit activations: a tile is 16 rows by 32 bytes (64 codes).
//   FlashInfer has had two orders, which no number in a file tells apart; h = row%16/8, r = row%8,
//   c the byte in the tile, b its bit.
//
//   0.6.16   nibbles of rows r and r + 8 side by side:
//            row  r + 8 * (c/8 % 2)
//            byte 16 * (c/16) + 4 * (c%4) + 2 * (c%8 / 4) + b/4
//            bit  4h + b%4
//
//   0.7      words of four bytes x0 = (r, c), x1 = (r+8, c), x2 = (r, c+4), x3 = (r+8, c+4), c%8 <
//   4,
//            so that sign and magnitude of each code stand where BF16 has them:
//            row  r + 8 * (c/8 % 2), word (bytes) 16 * (c/16) + 4 * (c%4)
//            bit  of x0  7..4 -> 31 24 23 22   3..0 -> 15  8  7  6
//                    x1          28 21 20 19           12  5  4  3
//                    x2          25 18 17 16            9  2  1  0
//                    x3          30 27 26 29           14 11 10 13
//
//   scales   0.6.16: (m, g) at g/4 * 4M + 4m + g%4      0.7: tiles of 64 x 4 (block_scales.h)
//
// Padding: whole tiles only; who pads, pads each half with zeros.
// Source: weight_layouts 2.7; tests/golden/weight_layouts, *_sm90_fi0616 and *_sm90_fi07.

enum class Sm90Version : std::uint8_t { kFlashinfer0616, kFlashinfer07 };
std::string_view name(Sm90Version version) noexcept;
/// "0.7", "0.7.4", "0.7.x" and "0.6.16", "0.6.16.post3".
std::optional<Sm90Version> sm90_version_by_name(std::string_view name) noexcept;

inline constexpr std::uint64_t kSm90TileRows = 16;
inline constexpr std::uint64_t kSm90TileBytes = 32;

/// Where a bit lies.
struct BitPlace {
  std::uint64_t row = 0;
  std::uint64_t column = 0;  // byte of the row
  std::uint32_t bit = 0;

  friend bool operator==(const BitPlace&, const BitPlace&) = default;
};

/// Where bit `from.bit` of byte `from.column` of row `from.row` goes.
BitPlace sm90_place(Sm90Version version, const BitPlace& from) noexcept;

/// Rows of tiles [first, first + out.size() / (16 * row_bytes)) of the codes that `from` orders;
/// order.rows() is a multiple of 16, row_bytes of 32.
///
/// Shapes: out [n * 16 * row_bytes], every byte written.
void sm90_codes_into(const OrderedRows& from, Sm90Version version, std::uint64_t first,
                     std::span<std::byte> out) noexcept;

/// The tile of the block scales of a matrix of `num_rows` rows.
constexpr ScaleTile sm90_scale_tile(Sm90Version version, std::uint64_t num_rows) noexcept {
  return version == Sm90Version::kFlashinfer07 ? kScales64x4 : ScaleTile{num_rows, num_rows};
}

}  // namespace lode::layout
