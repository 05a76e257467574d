#include "lode/layout/sm90_mixed.h"

#include <algorithm>
#include <cstring>

namespace lode::layout {
namespace {

using Bits = std::array<std::uint8_t, 8>;
// By bit 0..7 of a byte; the drawing has them from the left.
constexpr std::array<Bits, 4> kWordBits{{{6, 7, 8, 15, 22, 23, 24, 31},
                                         {3, 4, 5, 12, 19, 20, 21, 28},
                                         {0, 1, 2, 9, 16, 17, 18, 25},
                                         {13, 10, 11, 14, 29, 26, 27, 30}}};

using WordTable = std::array<std::uint32_t, 256>;
consteval std::array<WordTable, 4> make_word_tables() {
  std::array<WordTable, 4> tables{};
  for (std::size_t source = 0; source < 4; ++source) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      for (std::uint32_t bit = 0; bit < 8; ++bit) {
        tables[source][byte] |= (byte >> bit & 1U) << kWordBits[source][bit];
      }
    }
  }
  return tables;
}
constexpr std::array<WordTable, 4> kWordTables = make_word_tables();

using Piece = std::array<std::uint8_t, kSm90TileBytes>;

/// Bytes [at, at + 32) of a row.
Piece piece_of(std::span<const std::byte> row, std::uint64_t at) noexcept {
  Piece piece{};
  if (row.size() > at) {
    std::memcpy(piece.data(), row.data() + at, std::min<std::uint64_t>(32, row.size() - at));
  }
  return piece;
}

struct PiecePair {
  Piece upper{};  // row r of the tile
  Piece lower{};  // row r + 8
};

PiecePair mixed_07(const PiecePair& from) noexcept {
  PiecePair to;
  for (std::uint32_t part = 0; part < 4; ++part) {
    Piece& out = part % 2 == 0 ? to.upper : to.lower;
    for (std::uint32_t t = 0; t < 4; ++t) {
      const std::uint32_t c = 8 * part + t;
      const std::uint32_t word = kWordTables[0][from.upper[c]] | kWordTables[1][from.lower[c]] |
                                 kWordTables[2][from.upper[c + 4]] |
                                 kWordTables[3][from.lower[c + 4]];
      std::memcpy(out.data() + 16 * (part / 2) + 4 * t, &word, sizeof word);
    }
  }
  return to;
}

PiecePair mixed_0616(const PiecePair& from) noexcept {
  PiecePair to;
  for (std::uint32_t c = 0; c < kSm90TileBytes; ++c) {
    Piece& out = c / 8 % 2 == 0 ? to.upper : to.lower;
    const std::uint32_t at = 16 * (c / 16) + 4 * (c % 4) + 2 * (c % 8 / 4);
    const std::uint32_t a = from.upper[c];
    const std::uint32_t b = from.lower[c];
    out[at] = static_cast<std::uint8_t>((a & 15U) | (b & 15U) << 4);
    out[at + 1] = static_cast<std::uint8_t>(a >> 4 | (b & 0xF0U));
  }
  return to;
}

}  // namespace

std::string_view name(Sm90Version version) noexcept {
  return version == Sm90Version::kFlashinfer07 ? "0.7" : "0.6.16";
}

std::optional<Sm90Version> sm90_version_by_name(std::string_view name) noexcept {
  const auto is = [&](std::string_view begin) {
    return name == begin || (name.starts_with(begin) && name[begin.size()] == '.');
  };
  if (is("0.7")) return Sm90Version::kFlashinfer07;
  if (is("0.6.16")) return Sm90Version::kFlashinfer0616;
  return std::nullopt;
}

BitPlace sm90_place(Sm90Version version, const BitPlace& from) noexcept {
  const std::uint64_t h = from.row % kSm90TileRows / 8;
  const std::uint64_t c = from.column % kSm90TileBytes;
  const std::uint64_t row = from.row - 8 * h + 8 * (c / 8 % 2);
  const std::uint64_t column = from.column - c + 16 * (c / 16) + 4 * (c % 4);
  if (version == Sm90Version::kFlashinfer0616) {
    return {row, column + 2 * (c % 8 / 4) + from.bit / 4,
            static_cast<std::uint32_t>(4 * h + from.bit % 4)};
  }
  const std::uint32_t bit = kWordBits[h + 2 * (c % 8 / 4)][from.bit];
  return {row, column + bit / 8, bit % 8};
}

void sm90_codes_into(const OrderedRows& from, Sm90Version version, std::uint64_t first,
                     std::span<std::byte> out) noexcept {
  for (std::uint64_t upper = 0; upper < out.size() / from.row_bytes; ++upper) {
    if (upper % kSm90TileRows >= 8) continue;
    const std::uint64_t position = first * kSm90TileRows + upper;
    const auto upper_row = from.rows.row(from.order.at(position));
    const auto lower_row = from.rows.row(from.order.at(position + 8));
    std::byte* const to = out.data() + upper * from.row_bytes;
    for (std::uint64_t at = 0; at < from.row_bytes; at += kSm90TileBytes) {
      const PiecePair pair{piece_of(upper_row, at), piece_of(lower_row, at)};
      const PiecePair mixed =
          version == Sm90Version::kFlashinfer07 ? mixed_07(pair) : mixed_0616(pair);
      std::memcpy(to + at, mixed.upper.data(), kSm90TileBytes);
      std::memcpy(to + 8 * from.row_bytes + at, mixed.lower.data(), kSm90TileBytes);
    }
  }
}

}  // namespace lode::layout
