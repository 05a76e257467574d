#include "lode/layout/code_counts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace lode::layout {
namespace {

TEST(CodeCounts, CountEachByteOfEachHalfWhereverItsRowsLie) {
  const std::vector<std::byte> bytes{std::byte{7}, std::byte{7}, std::byte{255}, std::byte{0},
                                     std::byte{7}, std::byte{1}, std::byte{0},   std::byte{0},
                                     std::byte{7}, std::byte{9}};
  const CodeCounts counts = count_codes(rows_of(bytes, 2, 5, GateUpOrder::kGateUpInTurn));
  EXPECT_EQ(counts.of[0][7], 3U);
  EXPECT_EQ(counts.of[0][255], 1U);
  EXPECT_EQ(counts.of[0][0], 1U);
  EXPECT_EQ(counts.of[1][7], 1U);
  EXPECT_EQ(counts.of[1][0], 2U);
  EXPECT_EQ(std::accumulate(counts.of[1].begin(), counts.of[1].end(), 0U), 5U);
}

// Rows 1 and 2 of the first half, row 0 of the second, bytes 1 and 2 of each.
TEST(CodeCounts, CountWhatIsInMemoryOfAMatrix) {
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{3},
                                     std::byte{4}, std::byte{1}, std::byte{1}};
  MatrixRows rows;
  rows.num_halves = 2;
  rows.half_rows = 3;
  rows.row_bytes = 4;
  rows.bytes = {1, 3};
  rows.halves[0] = {bytes.data(), 2, {1, 3}};
  rows.halves[1] = {bytes.data() + 4, 2, {0, 1}};
  const CodeCounts counts = count_codes(rows);
  CodeCounts wanted;
  wanted.of[0][1] = wanted.of[0][2] = wanted.of[0][3] = wanted.of[0][4] = 1;
  wanted.of[1][1] = 2;
  EXPECT_EQ(counts, wanted);
  EXPECT_EQ(rows.row({0, 2})[2], std::byte{4});
  EXPECT_EQ(rows.row_here({0, 1}).size(), 2U);
  EXPECT_EQ(rows.row_here({0, 1})[0], std::byte{1});
  EXPECT_TRUE(rows.row({0, 3}).empty());
}

TEST(CodeCounts, CountNothingInAHalfThatIsNotThere) {
  const std::vector<std::byte> bytes(64, std::byte{3});
  const CodeCounts counts = count_codes(rows_of(bytes, 1, 64));
  EXPECT_EQ(counts.of[0][3], 64U);
  EXPECT_EQ(counts.of[1], (std::array<std::uint64_t, 256>{}));
  EXPECT_EQ(count_codes({}), CodeCounts{});
}

// E4M3: 0x38 is 1, 0x7E 448, 0x7F NaN, 0xB8 -1.
TEST(CodeCounts, KnowTheLargestNumberOfBothHalvesAndNoNan) {
  const auto largest = [](const std::vector<std::byte>& bytes) {
    return largest_number(count_codes(rows_of(bytes, 2, 1)), formats::Format::kE4m3);
  };
  EXPECT_EQ(largest({std::byte{0x38}, std::byte{0x7F}}), 1.0F);
  EXPECT_EQ(largest({std::byte{0x38}, std::byte{0x7E}}), 448.0F);
  EXPECT_EQ(largest({std::byte{0xB8}, std::byte{0x7F}}), 0.0F);
}

TEST(CodeCounts, AreTheSameForAnyNumberOfThreads) {
  std::vector<std::byte> bytes(3 * 1024 * 1024);
  std::mt19937 random(7);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const MatrixRows rows = rows_of(bytes, 2, 1024);
  const CodeCounts one = count_codes(rows);
  parallel::ThreadPool pool(3);
  EXPECT_EQ(count_codes(rows, &pool), one);
}

}  // namespace
}  // namespace lode::layout
