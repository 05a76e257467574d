// Marlin tiles: the layout's function and its inverse, the law against the formulas of the
// specification by bytes, and every ISA against the law.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lode/kernels/kernel_table.h"
#include "lode/kernels/test_guarded_bytes.h"

namespace lode::kernels {
namespace {

constexpr MarlinShape kShapes[] = {{4, false}, {8, false}, {4, true}, {8, true}};

TEST(MarlinTile, HoldsEachOf1024CodesOnce) {
  for (const MarlinShape& shape : kShapes) {
    std::set<std::uint32_t> seen;
    for (std::uint32_t row = 0; row < shape.tile_rows(); ++row) {
      for (std::uint32_t k = 0; k < shape.tile_k(); ++k) {
        const std::uint32_t code = marlin_code(shape, {row, k});
        ASSERT_LT(code, 1024U);
        seen.insert(code);
        const MarlinSpot spot = marlin_spot(shape, code);
        ASSERT_EQ(spot.row, row);
        ASSERT_EQ(spot.k, k);
      }
    }
    EXPECT_EQ(seen.size(), 1024U);
  }
}

// A column of random bytes, the last row ending where nobody may read.
struct Source {
  GuardedBytes bytes;
  std::vector<const std::byte*> rows;

  Source(const MarlinShape& shape, std::size_t row_bytes, std::mt19937& random)
      : bytes(shape.tile_rows() * row_bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes.data()[i] = static_cast<std::byte>(random());
    }
    for (std::size_t row = 0; row < shape.tile_rows(); ++row) {
      rows.push_back(bytes.data() + row * row_bytes);
    }
  }
};

std::vector<std::byte> made_by(const KernelTable& isa, MarlinColumn column, std::size_t shift) {
  std::vector<std::byte> room(column.num_tiles * column.tile_step_bytes + 64 + shift,
                              std::byte{0xEE});
  const std::size_t past = reinterpret_cast<std::uintptr_t>(room.data()) % 64;
  std::byte* const begin = room.data() + (64 - past) % 64 + shift;
  column.tiles = begin;
  isa.rows_to_marlin(column);
  return {begin, begin + column.num_tiles * column.tile_step_bytes};
}

// Weight_layouts 1.4: two words by hand. Lane 5 (c 1, q 1) of warp 2 in tile 1.
TEST(MarlinLaw, PutsBytesWhereTheFormulasHaveThem) {
  std::mt19937 random(1);
  const MarlinShape four{4, false};
  const Source source(four, 16, random);
  const auto tiles =
      made_by(available().front(), {four, source.rows.data(), 16, 2, nullptr, 512}, 0);
  const auto byte = [&](std::size_t n, std::size_t j) {
    return static_cast<std::uint32_t>(source.rows[n][j]);
  };
  const std::uint32_t x[4] = {byte(33, 9), byte(33, 13), byte(41, 9), byte(41, 13)};
  std::uint32_t want = 0, got = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    want |= (x[i] & 15U) << (4 * i) | x[i] >> 4 << (16 + 4 * i);
  }
  std::memcpy(&got, tiles.data() + 512 + (4UL * 5 + 2) * 4, 4);
  EXPECT_EQ(got, want);

  const MarlinShape eight{8, false};
  const Source wide(eight, 16, random);
  const auto bytes =
      made_by(available().front(), {eight, wide.rows.data(), 16, 1, nullptr, 1024}, 0);
  const std::size_t at = (8UL * 5 + 2 * 2 + 1) * 4;  // h 1
  const std::byte* const row = wide.rows[16 * 2 + 8 + 1];
  EXPECT_EQ(bytes[at], row[2]);
  EXPECT_EQ(bytes[at + 1], row[10]);
  EXPECT_EQ(bytes[at + 2], row[3]);
  EXPECT_EQ(bytes[at + 3], row[11]);
}

class MarlinOfIsa : public testing::TestWithParam<std::size_t> {
 protected:
  static void expect_law(const MarlinColumn& column, std::size_t shift) {
    const auto want = made_by(available().front(), column, shift);
    const auto got = made_by(available()[GetParam()], column, shift);
    ASSERT_EQ(want, got) << column.shape.bits << " bits, narrow " << column.shape.narrow_activations
                         << ", " << column.row_bytes << " bytes a row, " << column.num_tiles
                         << " tiles, shift " << shift;
  }
};

TEST_P(MarlinOfIsa, EqualsTheLawForAnyNumberOfTilesAndRows) {
  std::mt19937 random(2);
  for (const MarlinShape& shape : kShapes) {
    for (const std::size_t row_bytes : {8U, 40U, 64U, 72U, 200U, 256U}) {
      Source source(shape, row_bytes, random);
      const std::size_t whole = row_bytes / shape.tile_row_bytes();
      for (std::size_t tiles : {whole, whole + 1, whole / 2 + 1, whole + 9}) {
        for (const std::size_t shift : {0U, 4U}) {
          const std::size_t step = shape.tile_bytes() * (1 + random() % 3);
          expect_law({shape, source.rows.data(), row_bytes, tiles, nullptr, step}, shift);
        }
      }
      source.rows[random() % shape.tile_rows()] = nullptr;
      expect_law({shape, source.rows.data(), row_bytes, whole + 1, nullptr, shape.tile_bytes()}, 0);
    }
  }
}

// Any number of columns and groups; some rows missing, all of them ending where nobody may read.
TEST_P(MarlinOfIsa, TurnsScalesAsTheLawDoes) {
  std::mt19937 random(3);
  std::vector<std::uint8_t> tables(512);
  for (std::uint8_t& byte : tables) byte = static_cast<std::uint8_t>(random());
  for (int i = 0; i < 60; ++i) {
    ScaleColumns scales;
    scales.num_columns = i % 2 == 0 ? 64 : 1 + random() % 64;
    scales.num_groups = 1 + random() % 150;
    scales.row_bytes = i % 3 == 0 ? random() % scales.num_groups : scales.num_groups;
    scales.out_step_bytes = i % 4 < 2 ? 128 : 64 + random() % 100;
    GuardedBytes source(64 * scales.row_bytes + 1);
    for (std::size_t at = 0; at < source.size(); ++at) {
      source.data()[at] = static_cast<std::byte>(random());
    }
    for (std::size_t row = 0; row < scales.num_columns; ++row) {
      scales.rows[row] = random() % 9 == 0 ? nullptr : source.data() + 1 + row * scales.row_bytes;
      scales.tables[row] = tables.data() + random() % 2 * 256;
    }
    std::vector<std::byte> made[2];
    for (std::size_t which = 0; which < 2; ++which) {
      made[which].assign(scales.num_groups * scales.out_step_bytes + 64, std::byte{0xEE});
      const auto past = reinterpret_cast<std::uintptr_t>(made[which].data()) % 64;
      scales.out = made[which].data() + (64 - past) % 64 + (i % 5 == 0 ? 1 : 0);
      const std::byte* const begin = scales.out;
      available()[which == 0 ? 0 : GetParam()].scales_to_columns(scales);
      const std::size_t last = (scales.num_groups - 1) * scales.out_step_bytes;
      made[which].assign(begin, begin + last + scales.num_columns);
    }
    ASSERT_EQ(made[0], made[1]) << scales.num_columns << " columns, " << scales.num_groups
                                << " groups of " << scales.row_bytes;
  }
}

TEST(MarlinLaw, TurnsScalesThroughTheirTables) {
  const std::byte rows[] = {std::byte{3}, std::byte{1}, std::byte{2}, std::byte{0}};
  std::vector<std::uint8_t> plus_ten(256), twice(256);
  for (std::uint32_t code = 0; code < 256; ++code) {
    plus_ten[code] = static_cast<std::uint8_t>(code + 10);
    twice[code] = static_cast<std::uint8_t>(2 * code);
  }
  ScaleColumns scales;
  scales.num_columns = 3;
  scales.num_groups = 3;
  scales.row_bytes = 2;
  scales.out_step_bytes = 3;
  scales.rows[0] = rows;
  scales.rows[1] = rows + 2;
  for (std::size_t row = 0; row < 3; ++row) scales.tables[row] = plus_ten.data();
  scales.tables[1] = twice.data();
  std::byte out[9];
  scales.out = out;
  available().front().scales_to_columns(scales);
  const int want[] = {13, 4, 10, 11, 0, 10, 10, 0, 10};  // the third group and row are not there
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(static_cast<int>(out[i]), want[i]) << i;
}

std::vector<std::size_t> isas() {
  std::vector<std::size_t> all(available().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, MarlinOfIsa, testing::ValuesIn(isas()), [](const auto& tested) {
  return std::string(available()[tested.param].isa);
});

}  // namespace
}  // namespace lode::kernels
