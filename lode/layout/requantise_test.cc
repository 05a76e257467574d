#include "lode/layout/requantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/layout/unpack.h"

namespace lode::layout {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

TEST(RequantiseToInt8, ScalesEachRowOf128ByItsLargestMagnitude) {
  const std::uint64_t k = 130;
  std::vector<float> numbers(2 * k);
  numbers[0] = -254.0F;  // scale 2
  numbers[1] = 5.0F;     // 2.5: to even
  numbers[2] = 7.0F;     // 3.5: to even
  numbers[128] = 12.7F;  // second block of row 0
  const auto layout = *PanelLayout::make(formats::kInt8Row128, 2, k);
  std::vector<std::byte> panels(layout.total_bytes());
  const auto bytes = bytes_of(numbers);
  ASSERT_TRUE(requantise_to_int8(layout, {0, 0, 2, 0, k}, formats::kPlainF32,
                                 {bytes, false, k * 4, 0}, nullptr, panels));
  std::vector<float> row(k);
  decode_panel_row(layout, 0, panels, 0, row);
  EXPECT_EQ(row[0], -254.0F);
  EXPECT_EQ(row[1], 4.0F);
  EXPECT_EQ(row[2], 8.0F);
  EXPECT_EQ(row[128], 127.0F * (12.7F / 127.0F));
  decode_panel_row(layout, 0, panels, 1, row);
  EXPECT_EQ(row, std::vector<float>(k));
}

// Each number is off by at most half a step of its block.
TEST(RequantiseToInt8, StaysWithinHalfAStep) {
  const std::uint64_t rows = 21, k = 300;
  std::vector<float> numbers(rows * k);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i % 17);
  }
  const auto layout = *PanelLayout::make(formats::kInt8Row128, rows, k);
  std::vector<std::byte> panels(layout.total_bytes());
  const auto bytes = bytes_of(numbers);
  ASSERT_TRUE(requantise_to_int8(layout, {0, 0, rows, 0, k}, formats::kPlainF32,
                                 {bytes, false, k * 4, 0}, nullptr, panels));
  std::vector<float> row(k);
  for (std::uint64_t r = 0; r < rows; ++r) {
    decode_panel_row(layout, 0, panels, r, row);
    for (std::uint64_t i = 0; i < k; ++i) {
      float scale = 0.0F;
      std::memcpy(&scale, panels.data() + layout.scale_offset(0, r, i / 128), sizeof scale);
      // half a step, and a rounding of the division and of the product (2^-23 of 127 steps)
      ASSERT_LE(std::fabs(row[i] - numbers[r * k + i]), scale * (0.5F + 127.0F * 0x1p-23F));
    }
  }
}

TEST(RequantiseToInt8, AppliesTheScalesOfFp8) {
  const std::vector<std::byte> codes(16, std::byte{0x38});  // E4M3 1.0
  const std::vector<std::byte> scale = bytes_of({3.0F});
  SourceScales scales;
  scales.bytes = scale;
  scales.format = formats::Format::kF32;
  scales.outer_stride_bytes = 4;
  const auto layout = *PanelLayout::make(formats::kInt8Row128, 1, 16);
  std::vector<std::byte> panels(layout.total_bytes());
  ASSERT_TRUE(requantise_to_int8(layout, {0, 0, 1, 0, 16}, formats::kFp8Tensor,
                                 {codes, false, 16, 0}, &scales, panels));
  std::vector<float> row(16);
  decode_panel_row(layout, 0, panels, 0, row);
  EXPECT_EQ(row, std::vector<float>(16, 127.0F * (3.0F / 127.0F)));
}

// E4M3 1.0 everywhere; 300 k of blocks of `block` with the scales 1, 2, 3, ...: int8 must hold
// them as the largest of each 128 commands.
void expect_scales_of_blocks(std::uint32_t block) {
  constexpr std::uint64_t k = 300;
  const std::vector<std::byte> codes(k, std::byte{0x38});
  std::vector<float> values;
  for (std::uint64_t at = 0; at < k; at += block) {
    values.push_back(static_cast<float>(values.size() + 1));
  }
  const std::vector<std::byte> bytes = bytes_of(values);
  SourceScales scales;
  scales.bytes = bytes;
  scales.format = formats::Format::kF32;
  scales.outer_stride_bytes = bytes.size();
  const auto layout = *PanelLayout::make(formats::kInt8Row128, 1, k);
  std::vector<std::byte> panels(layout.total_bytes());
  const formats::Encoding encoding{formats::Format::kE4m3, formats::Format::kF32, 1, block, true};
  ASSERT_TRUE(
      requantise_to_int8(layout, {0, 0, 1, 0, k}, encoding, {codes, false, k, 0}, &scales, panels));
  std::vector<float> row(k);
  decode_panel_row(layout, 0, panels, 0, row);
  for (std::uint64_t i = 0; i < k; ++i) {
    const std::uint64_t last = std::min(i / 128 * 128 + 127, k - 1);
    const float largest = values[last / block];
    // Half a step of the largest over 127, and two roundings.
    ASSERT_LE(std::fabs(row[i] - values[i / block]), largest / 127.0F * (0.5F + 127.0F * 0x1p-23F))
        << "block " << block << " k " << i;
  }
}

TEST(RequantiseToInt8, AppliesEachScaleToItsOwnBlock) {
  for (const std::uint32_t block : {32U, 64U, 100U, 128U, 256U}) expect_scales_of_blocks(block);
}

TEST(RequantiseToInt8, MakesTheSameOfTransposedStorage) {
  constexpr std::uint64_t kRows = 37, k = 300;
  const auto layout = *PanelLayout::make(formats::kInt8Row128, kRows, k);
  for (const std::uint64_t step : {1U, 2U}) {  // 2: rows of another matrix lie between
    std::vector<float> rows_first(kRows * k), k_first(kRows * k * step, 1e9F);
    for (std::uint64_t row = 0; row < kRows; ++row) {
      for (std::uint64_t i = 0; i < k; ++i) {
        const float number = std::sin(static_cast<float>(row * k + i));
        rows_first[row * k + i] = number;
        k_first[(i * kRows + row) * step] = number;
      }
    }
    const PanelTile tile{0, 0, kRows, 0, k};
    std::vector<std::byte> want(layout.total_bytes()), got(want.size());
    const auto bytes = bytes_of(rows_first), transposed = bytes_of(k_first);
    ASSERT_TRUE(requantise_to_int8(layout, tile, formats::kPlainF32, {bytes, false, 4 * k, 0},
                                   nullptr, want));
    ASSERT_TRUE(requantise_to_int8(layout, tile, formats::kPlainF32,
                                   {transposed, true, 4 * kRows * step, 4 * step}, nullptr, got));
    EXPECT_EQ(got, want) << step;
  }
}

TEST(RequantiseToInt8, RefusesNumbersThatAreNotFinite) {
  const auto layout = *PanelLayout::make(formats::kInt8Row128, 1, 4);
  std::vector<std::byte> panels(layout.total_bytes());
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    const auto bytes = bytes_of({1.0F, bad, 2.0F, 3.0F});
    EXPECT_FALSE(requantise_to_int8(layout, {0, 0, 1, 0, 4}, formats::kPlainF32,
                                    {bytes, false, 16, 0}, nullptr, panels));
  }
}

}  // namespace
}  // namespace lode::layout
