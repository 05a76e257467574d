#include "lode/layout/row_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lode::layout {
namespace {

std::vector<std::uint64_t> first_rows(const RowOrder& order, std::size_t count) {
  std::vector<std::uint64_t> rows;
  for (std::uint64_t position = 0; position < count; ++position) {
    const HalfRow row = order.at(position);
    rows.push_back(row.half * order.half_rows + row.row);
  }
  return rows;
}

// The figures of weight_layouts 6: rows of [up; gate], so gate's begin at 64.
TEST(RowOrder, CombinesTurnsAndShuffleAsTheKernelsDo) {
  const RowOrder order{2, 64, GateUpOrder::kUpGateInTurn, RowShuffle::kBy32};
  std::vector<std::uint64_t> rows = first_rows(order, 40);
  for (std::uint64_t& row : rows) row = (row + 64) % 128;
  const std::vector<std::uint64_t> want{0,  2,  4,  6,  8,  10, 12, 14, 64, 66, 68, 70, 72, 74,
                                        76, 78, 1,  3,  5,  7,  9,  11, 13, 15, 65, 67, 69, 71,
                                        73, 75, 77, 79, 16, 18, 20, 22, 24, 26, 28, 30};
  EXPECT_EQ(rows, want);
}

TEST(RowOrder, ShufflesRowsOfOneMatrix) {
  EXPECT_EQ(first_rows({1, 32, {}, RowShuffle::kBy16}, 8),
            (std::vector<std::uint64_t>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(first_rows({1, 32, {}, RowShuffle::kBy32}, 9),
            (std::vector<std::uint64_t>{0, 4, 8, 12, 16, 20, 24, 28, 1}));
}

TEST(RowOrder, IsUndoneByThePositionOfEachRow) {
  for (const GateUpOrder turn :
       {GateUpOrder::kGateThenUp, GateUpOrder::kUpThenGate, GateUpOrder::kGateUpInTurn,
        GateUpOrder::kUpGateInTurn, GateUpOrder::kUpGateBy64}) {
    for (const RowShuffle shuffle : {RowShuffle::kNone, RowShuffle::kBy16, RowShuffle::kBy32}) {
      for (const std::uint32_t halves : {1U, 2U}) {
        const RowOrder order{halves, 192, turn, shuffle};
        std::set<std::uint64_t> seen;
        for (std::uint64_t position = 0; position < order.rows(); ++position) {
          const HalfRow row = order.at(position);
          ASSERT_LT(row.half, halves);
          ASSERT_LT(row.row, order.half_rows);
          EXPECT_EQ(order.position_of(row), position) << name(turn) << name(shuffle);
          seen.insert(row.half * order.half_rows + row.row);
        }
        EXPECT_EQ(seen.size(), order.rows());
      }
    }
  }
}

TEST(RowsWithin, AreTheRowsOfAPieceOfTheOrder) {
  const auto rows = [](const RowOrder& order, std::uint64_t first, std::uint64_t end) {
    return rows_within(order, first, end);
  };
  using Halves = std::array<Range, 2>;
  const RowOrder then{2, 64, GateUpOrder::kUpThenGate};
  EXPECT_EQ(rows(then, 10, 20), (Halves{Range{0, 0}, Range{10, 20}}));
  EXPECT_EQ(rows(then, 60, 70), (Halves{Range{0, 6}, Range{60, 64}}));
  EXPECT_EQ(rows({2, 64, GateUpOrder::kGateUpInTurn}, 10, 20),
            (Halves{Range{5, 10}, Range{5, 10}}));
  // Position 1 of a block of 32 holds row 4.
  EXPECT_EQ(rows({1, 64, {}, RowShuffle::kBy32}, 32, 34), (Halves{Range{32, 37}, Range{0, 0}}));
  EXPECT_EQ(rows(then, 120, 400), (Halves{Range{56, 64}, Range{0, 0}}));
}

}  // namespace
}  // namespace lode::layout
