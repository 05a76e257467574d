#include "lode/layout/block_scales.h"

#include <gtest/gtest.h>

#include "lode/layout/block_major.h"
#include "lode/layout/test_gate_up.h"

namespace lode::layout {
namespace {

using testing::GoldenCase;
using testing::random_bytes;
using Bytes = std::vector<std::byte>;

Bytes tiled(std::span<const std::byte> matrix, std::uint64_t rows, std::uint64_t columns,
            const ScaleTile& tile = kScales128x4) {
  const BlockScales places{tile, rows, columns};
  Bytes out(places.bytes(), std::byte{0xEE});
  block_scales_into({rows_of(matrix, 1, columns), {1, rows}, places.padded_columns()}, tile, 0,
                    out);
  return out;
}

TEST(BlockScales, AreWhatTheEnginesCodeComputed) {
  const GoldenCase golden("swizzle_blockscale");
  for (const auto& [name, experts, rows, columns] :
       {std::tuple{"a", 3U, 72U, 6U}, std::tuple{"b", 2U, 256U, 8U},
        std::tuple{"c", 1U, 130U, 5U}}) {
    const Bytes in = golden.bytes(std::string("in.") + name);
    Bytes out;
    for (std::uint64_t expert = 0; expert < experts; ++expert) {
      const auto matrix = std::span(in).subspan(expert * rows * columns, rows * columns);
      const Bytes part = tiled(matrix, rows, columns);
      out.insert(out.end(), part.begin(), part.end());
    }
    EXPECT_EQ(out, golden.bytes(std::string("out.") + name)) << name;
    EXPECT_EQ(tiled(std::span(in).first(rows * columns), rows, columns).size(),
              BlockScales({kScales128x4, rows, columns}).bytes());
  }
}

// The figures of weight_layouts 6, which are not of our code.
TEST(BlockScales, BeginAsThePaperFigureDoes) {
  Bytes in(130 * 6);
  for (std::size_t m = 0; m < 130; ++m) {
    for (std::size_t c = 0; c < 6; ++c)
      in[m * 6 + c] = static_cast<std::byte>((7 * m + 11 * c) % 251);
  }
  const Bytes out = tiled(in, 130, 6);
  ASSERT_EQ(out.size(), 2048U);
  const std::vector<unsigned> want{0,   11,  22,  33,  224, 235, 246, 6,  197, 208,
                                   219, 230, 170, 181, 192, 203, 7,   18, 29,  40};
  for (std::size_t at = 0; at < want.size(); ++at) {
    EXPECT_EQ(std::to_integer<unsigned>(out[at]), want[at]) << at;
  }
}

TEST(BlockScales, LieWhereTheFunctionSaysAndThereTheInverseFindsThem) {
  std::mt19937 random(11);
  for (const ScaleTile& tile : {kScales128x4, kScales8x4, kScales64x4, ScaleTile{24, 24}}) {
    for (int round = 0; round < 8; ++round) {
      const std::uint64_t rows = 1 + random() % 300;
      const std::uint64_t columns = 1 + random() % 23;
      const BlockScales places{tile, rows, columns};
      const Bytes in = random_bytes(rows * columns, random);
      const Bytes out = tiled(in, rows, columns, tile);
      for (std::uint64_t offset = 0; offset < out.size(); ++offset) {
        const ScalePlace at = places.at(offset);
        ASSERT_EQ(places.offset(at.row, at.column), offset);
        const bool padding = at.row >= rows || at.column >= columns;
        ASSERT_EQ(out[offset], padding ? std::byte{} : in[at.row * columns + at.column]);
      }
    }
  }
}

TEST(BlockScales, AreTheSameInUnitsOfARowOfTiles) {
  std::mt19937 random(12);
  const Bytes in = random_bytes(2 * 100 * 5, random);
  OrderedRows from{rows_of(in, 2, 5), {2, 128, GateUpOrder::kUpGateInTurn, RowShuffle::kBy32}, 8};
  from.padding = std::byte{127};
  Bytes whole(256 * 8);
  block_scales_into(from, kScales128x4, 0, whole);
  Bytes parts(256 * 8);
  for (const std::uint64_t unit : {1U, 0U}) {
    block_scales_into(from, kScales128x4, unit, std::span(parts).subspan(unit * 1024, 1024));
  }
  EXPECT_EQ(whole, parts);
  const BlockScales places{kScales128x4, 256, 8};
  for (std::uint64_t position = 0; position < 256; ++position) {
    Bytes row(8);
    ordered_row_into(from, position, row);
    for (std::uint64_t column = 0; column < 8; ++column) {
      EXPECT_EQ(whole[places.offset(position, column)], row[column]);
    }
  }
}

TEST(BlockMajor, IsWhatTheEnginesCodeComputed) {
  const GoldenCase golden("shuffle_matrix_sf_a");
  const Bytes in = golden.bytes("in.w");
  Bytes out(in.size());
  block_major_into({rows_of(in, 1, 256), {1, 64}, 256}, 0, out);
  EXPECT_EQ(out, golden.bytes("out.w_block"));
}

TEST(BlockMajor, PutsEveryByteWhereTheFunctionSaysAndPadsWithZeros) {
  std::mt19937 random(13);
  const Bytes in = random_bytes(2 * 20 * 200, random);
  const RowOrder order{2, 24, GateUpOrder::kUpThenGate, RowShuffle::kBy16};
  const OrderedRows from{rows_of(in, 2, 200), order, 256};
  Bytes out(from.bytes(), std::byte{0xEE});
  for (const std::uint64_t unit : {1U, 0U}) {
    block_major_into(from, unit, std::span(out).subspan(unit * 48 * 128, 48 * 128));
  }
  for (std::uint64_t position = 0; position < 48; ++position) {
    Bytes row(256);
    ordered_row_into(from, position, row);
    for (std::uint64_t column = 0; column < 256; ++column) {
      ASSERT_EQ(out[block_major_offset(48, position, column)], row[column]);
    }
  }
}

}  // namespace
}  // namespace lode::layout
