#include "lode/layout/deepgemm_scales.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/formats/ue8m0_requantise.h"
#include "lode/layout/test_golden_case.h"

namespace lode::layout {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  DeepgemmScales layout;
  RowOrder order;
};

Bytes packed(const Case& test, const MatrixRows& scales, std::uint64_t step) {
  Bytes out(test.layout.bytes(), std::byte{0xA5});
  const std::uint64_t row_bytes = test.layout.word_row_bytes();
  for (std::uint64_t first = 0; first < test.layout.word_rows(); first += step) {
    const std::uint64_t count = std::min(step, test.layout.word_rows() - first);
    deepgemm_scales_into(test.layout, test.order, scales, first,
                         std::span(out).subspan(first * row_bytes, count * row_bytes));
  }
  return out;
}

/// The bytes of the words of real rows, as the golden files have them.
Bytes without_alignment(const DeepgemmScales& layout, const Bytes& packed) {
  Bytes out;
  for (std::uint64_t i = 0; i < layout.word_rows(); ++i) {
    const auto begin = packed.begin() + static_cast<std::ptrdiff_t>(i * layout.word_row_bytes());
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(layout.rows * 4));
  }
  return out;
}

void expect_golden(const std::string& name, std::uint64_t groups, const DeepgemmScales& layout) {
  const testing::GoldenCase golden("deepgemm_pack_ue8m0");
  const Bytes scales = golden.bytes("in." + name);
  Bytes exponents(scales.size() / 4);
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    const float scale = formats::number_at(formats::Format::kF32, scales, i);
    exponents[i] = std::byte{formats::exponent_byte(scale)};
  }
  Bytes got;
  const std::uint64_t one = exponents.size() / groups;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const auto part = std::span(exponents).subspan(group * one, one);
    const MatrixRows rows = rows_of(part, 1, layout.columns);
    const Bytes words =
        without_alignment(layout, packed({layout, {1, layout.rows}}, rows, layout.word_rows()));
    got.insert(got.end(), words.begin(), words.end());
  }
  EXPECT_EQ(got, golden.bytes("out." + name)) << name;
}

TEST(DeepgemmScales, AreTheBytesOfDeepgemm) {
  expect_golden("a", 2, {6, 5, 1});
  expect_golden("b", 1, {9, 4, 1});
  expect_golden("c", 3, {4, 1, 1});
}

TEST(DeepgemmScales, OfBlocksOf128RowsRepeatThem) {
  expect_golden("bn_a", 2, {192, 5, 128});
  expect_golden("bn_b", 1, {288, 4, 128});
  expect_golden("bn_c", 3, {128, 1, 128});
}

// Random shapes: every exponent lies where the function says, all else is zero, and the inverse
// gives the rows back; whatever number of word rows are made at a time.
TEST(DeepgemmScales, LieWhereTheFunctionSaysAndComeBack) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 60; ++trial) {
    const std::uint32_t halves = 1 + random() % 2;
    const std::uint64_t block_rows = trial % 2 == 0 ? 1 : 8;
    const std::uint64_t scale_rows = 1 + random() % 9;
    const std::uint64_t half_rows = scale_rows * block_rows + (block_rows == 1 ? random() % 3 : 0);
    const std::uint64_t columns = 1 + random() % 11;
    const auto order =
        halves == 2 && random() % 2 == 0 ? GateUpOrder::kGateUpInTurn : GateUpOrder::kGateThenUp;
    const Case test{{halves * half_rows, columns, block_rows}, {halves, half_rows, order}};
    Bytes scales(halves * scale_rows * columns);
    for (std::byte& scale : scales) scale = static_cast<std::byte>(1 + random() % 255);
    const MatrixRows rows = rows_of(scales, halves, columns);
    const Bytes out = packed(test, rows, 1 + random() % 3);

    Bytes want(test.layout.bytes());
    for (std::uint64_t row = 0; row < test.layout.rows; ++row) {
      const HalfRow at = test.order.at(row);
      const auto source = rows.row({at.half, at.row / block_rows});
      for (std::uint64_t c = 0; c < source.size(); ++c) {
        want[test.layout.offset(row, c)] = source[c];
      }
      Bytes back(columns);
      unpack_deepgemm_row(test.layout, out, row, back);
      EXPECT_EQ(back, source.empty() ? Bytes(columns) : Bytes(source.begin(), source.end()));
    }
    ASSERT_EQ(out, want);
    if (half_rows == scale_rows * block_rows) {
      const auto zeros = static_cast<std::uint64_t>(std::ranges::count(out, std::byte{0}));
      EXPECT_EQ(zeros, test.layout.padding_bytes());
    }
  }
}

}  // namespace
}  // namespace lode::layout
