// Marlin tiles of whole matrices: golden bytes of the engines' repack, the CRCs of the
// specification, and the layout's function over random shapes.
#include "lode/layout/marlin_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lode/layout/gptq_words.h"
#include "lode/layout/test_gate_up.h"
#include "lode/layout/test_golden_case.h"

namespace lode::layout {
namespace {

using kernels::MarlinShape;
using Bytes = std::vector<std::byte>;

constexpr MarlinShape kShapes[] = {{4, false}, {8, false}, {4, true}, {8, true}};

RowOrder one_matrix(std::uint64_t rows) { return {1, rows, {}, RowShuffle::kNone}; }

Bytes repacked(const MarlinLayout& layout, const Bytes& rows) {
  Bytes out(layout.total_bytes(), std::byte{0xEE});
  marlin_from_rows(layout, one_matrix(layout.rows()), rows_of(rows, 1, rows.size() / layout.rows()),
                   0, out);
  return out;
}

struct GoldenRepack {
  const char* name;
  std::uint64_t k, rows;
  MarlinShape shape;
};

TEST(MarlinWeights, EqualTheEnginesRepack) {
  for (const GoldenRepack& golden : {GoldenRepack{"b4_a16_k128_n64", 128, 64, {4, false}},
                                     GoldenRepack{"b4_a16_k64_n192", 64, 192, {4, false}},
                                     GoldenRepack{"b4_a8_k128_n64", 128, 64, {4, true}},
                                     GoldenRepack{"b4_a8_k64_n192", 64, 192, {4, true}},
                                     GoldenRepack{"b8_a16_k128_n64", 128, 64, {8, false}},
                                     GoldenRepack{"b8_a16_k64_n192", 64, 192, {8, false}},
                                     GoldenRepack{"b8_a8_k128_n64", 128, 64, {8, true}},
                                     GoldenRepack{"b8_a8_k64_n192", 64, 192, {8, true}}}) {
    const testing::GoldenCase file(std::string("marlin_repack_") + golden.name);
    const Bytes words = file.bytes("in.b_q_weight");
    Bytes rows(words.size());
    transpose_words(words, words.size() / 4 / golden.rows, golden.rows, rows);
    const auto layout = MarlinLayout::make(golden.rows, golden.k, golden.shape);
    ASSERT_TRUE(layout);
    EXPECT_EQ(repacked(*layout, rows), file.bytes("out.marlin_qweight")) << golden.name;
  }
}

TEST(MarlinWeights, EqualTheEnginesRepackInActOrder) {
  for (const std::uint32_t bits : {4U, 8U}) {
    const testing::GoldenCase file("marlin_repack_b" + std::to_string(bits) + "_perm_k64_n128");
    const Bytes words = file.bytes("in.b_q_weight"), perm = file.bytes("in.perm");
    std::vector<std::uint32_t> order(64);
    ASSERT_EQ(perm.size(), 4 * order.size());
    std::memcpy(order.data(), perm.data(), perm.size());
    const std::uint64_t row_bytes = 64UL * bits / 8;
    Bytes rows(words.size()), taken(words.size());
    transpose_words(words, row_bytes / 4, 128, rows);
    for (std::size_t row = 0; row < 128; ++row) {
      take_in_order(std::span(rows).subspan(row * row_bytes, row_bytes), bits, order,
                    std::span(taken).subspan(row * row_bytes, row_bytes));
    }
    EXPECT_EQ(repacked(*MarlinLayout::make(128, 64, {bits, false}), taken),
              file.bytes("out.marlin_qweight"));
  }
}

std::uint32_t crc32(const Bytes& bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

// Weight_layouts 6: K 64, N 128, q[k][n] = 5k + 3n + ((k n) >> 3).
TEST(MarlinWeights, HaveTheChecksumsOfTheSpecification) {
  struct Sums {
    MarlinShape shape;
    std::uint32_t gptq, tiles;
  };
  for (const Sums& want :
       {Sums{{4, false}, 0xc81d7787, 0x343d7f87}, Sums{{4, true}, 0xc81d7787, 0x9bde2171},
        Sums{{8, false}, 0x7f12b395, 0xcb697147}, Sums{{8, true}, 0x7f12b395, 0xb7596db9}}) {
    const std::uint32_t bits = want.shape.bits;
    const std::uint64_t row_bytes = 64UL * bits / 8;
    Bytes rows(128 * row_bytes), words(rows.size());
    for (std::uint32_t n = 0; n < 128; ++n) {
      for (std::uint32_t k = 0; k < 64; ++k) {
        const std::uint32_t code = (5 * k + 3 * n + (k * n >> 3)) & ((1U << bits) - 1U);
        rows[n * row_bytes + k * bits / 8] |= static_cast<std::byte>(code << k * bits % 8);
      }
    }
    transpose_words(rows, 128, row_bytes / 4, words);
    EXPECT_EQ(crc32(words), want.gptq);
    EXPECT_EQ(crc32(repacked(*MarlinLayout::make(128, 64, want.shape), rows)), want.tiles);
  }
}

TEST(MarlinWeights, HoldEachCodeOnceAndKnowWhichItIs) {
  for (const MarlinShape& shape : kShapes) {
    const MarlinLayout layout = *MarlinLayout::make(192, 96, shape);
    std::set<std::uint64_t> seen;
    for (std::uint64_t row = 0; row < 192; ++row) {
      for (std::uint64_t k = 0; k < 96; ++k) {
        const CodePlace place = layout.code({row, k});
        ASSERT_LT(place.offset_bytes, layout.total_bytes());
        seen.insert(8 * place.offset_bytes + place.shift_bits);
        ASSERT_EQ(layout.at(place), (MatrixSpot{row, k}));
      }
    }
    EXPECT_EQ(seen.size(), 192U * 96U);
  }
}

// A gate and an up somewhere in memory, in any order, with rows and k missing; units dealt out.
struct Case {
  MarlinShape shape;
  RowOrder order;
  std::uint64_t half_rows, row_bytes, k;
};

Case random_case(std::mt19937& random) {
  Case made;
  made.shape = kShapes[random() % 4];
  made.order.num_halves = 1 + random() % 2;
  made.order.half_rows = 64 * (1 + random() % 3);
  made.order.order = static_cast<GateUpOrder>(random() % 5);
  made.k = 32 * (1 + random() % 9);
  made.half_rows = made.order.half_rows - random() % 64;
  made.row_bytes = made.k * made.shape.bits / 8 - random() % 16;
  return made;
}

TEST(MarlinWeights, LieWhereTheFunctionSaysForAnyShapeAndAnyUnits) {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const Case made = random_case(random);
    const MarlinLayout layout = *MarlinLayout::make(made.order.rows(), made.k, made.shape);
    const Bytes bytes =
        testing::random_bytes(made.order.num_halves * made.half_rows * made.row_bytes, random);
    const MatrixRows rows =
        rows_of(bytes, made.order.num_halves, made.row_bytes,
                random() % 2 == 0 ? GateUpOrder::kGateUpInTurn : GateUpOrder::kGateThenUp);
    Bytes tiles(layout.total_bytes(), std::byte{0xEE});
    for (std::uint64_t unit = 0; unit < layout.units();) {
      const std::uint64_t some = std::min<std::uint64_t>(1 + random() % 5, layout.units() - unit);
      marlin_from_rows(
          layout, made.order, rows, unit,
          std::span(tiles).subspan(unit * layout.unit_bytes(), some * layout.unit_bytes()));
      unit += some;
    }
    Bytes whole(made.k * made.shape.bits / 8);
    for (std::uint64_t position = 0; position < layout.rows(); ++position) {
      marlin_to_row(layout, position, tiles, whole);
      const auto row = rows.row(made.order.at(position));
      Bytes want(row.begin(), row.end());
      want.resize(whole.size());
      ASSERT_EQ(whole, want) << "row " << position << " of " << layout.rows();
    }
  }
}

TEST(MarlinWeights, RefuseSizesThatTilesDoNotHave) {
  EXPECT_TRUE(MarlinLayout::make(64, 16, {4, false}));
  for (const auto& [rows, k, shape] : {std::tuple{96UL, 64UL, MarlinShape{4, false}},
                                       {64UL, 24UL, {4, false}},
                                       {0UL, 64UL, {4, false}},
                                       {64UL, 0UL, {8, false}},
                                       {64UL, 48UL, {4, true}},
                                       {96UL, 64UL, {8, true}},
                                       {64UL, 64UL, {2, false}},
                                       {1UL << 40, 1UL << 40, {4, false}}}) {
    const auto made = MarlinLayout::make(rows, k, shape);
    ASSERT_FALSE(made) << rows << " " << k;
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    EXPECT_FALSE(made.error().wanted.empty());
    EXPECT_FALSE(made.error().found.empty());
  }
}

}  // namespace
}  // namespace lode::layout
