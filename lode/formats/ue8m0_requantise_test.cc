#include "lode/formats/ue8m0_requantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lode/formats/test_layout_case.h"

namespace lode::formats {
namespace {

using golden::Bytes;
using golden::differing;
using golden::LayoutCase;

struct Matrix {
  std::uint64_t rows, k;
  Bytes codes;
  std::vector<float> scales;
};

/// Row of blocks `row` of a matrix.
Fp8Strip strip_of(const Matrix& matrix, std::span<const std::byte> scales, std::uint64_t row) {
  const std::uint64_t columns = (matrix.k + 127) / 128;
  return {.first = matrix.codes.data() + row * 128 * matrix.k,
          .step_bytes = matrix.k,
          .rows = std::min<std::uint64_t>(128, matrix.rows - row * 128),
          .k = matrix.k,
          .scales = scales.subspan(row * columns * 4, columns * 4)};
}

void requantise(Matrix& matrix) {
  const std::uint64_t columns = (matrix.k + 127) / 128;
  const std::vector<float> old = matrix.scales;
  for (std::uint64_t row = 0; row * 128 < matrix.rows; ++row) {
    const Fp8Strip strip = strip_of(matrix, std::as_bytes(std::span(old)), row);
    for (std::uint64_t column = 0; column < columns; ++column) {
      matrix.scales[row * columns + column] = ue8m0_scale_of(block_amax(strip, column));
    }
    std::vector<float> scales(columns);
    const auto codes = std::span(matrix.codes).subspan(row * 128 * matrix.k, strip.rows * matrix.k);
    requantise_strip(strip, codes, matrix.k, scales);
    const auto first = matrix.scales.begin() + static_cast<std::ptrdiff_t>(row * columns);
    EXPECT_TRUE(std::ranges::equal(scales, std::span(first, columns)));
  }
}

TEST(Ue8m0, GivesTheEnginesBytesInPlace) {
  const LayoutCase golden("ue8m0_requant");
  const Bytes codes = golden.bytes("in.weight");
  const std::vector<float> scales = golden.floats("in.weight_scale");
  const Bytes want_codes = golden.bytes("out.weight");
  const std::vector<float> want_scales = golden.floats("out.weight_scale");
  for (std::ptrdiff_t expert = 0; expert < 2; ++expert) {
    const auto first = expert * 160 * 192;
    Matrix matrix{160, 192, Bytes(codes.begin() + first, codes.begin() + first + 160 * 192),
                  std::vector(scales.begin() + expert * 4, scales.begin() + expert * 4 + 4)};
    requantise(matrix);
    EXPECT_EQ(matrix.scales,
              std::vector(want_scales.begin() + expert * 4, want_scales.begin() + expert * 4 + 4));
    const Bytes want(want_codes.begin() + first, want_codes.begin() + first + 160 * 192);
    EXPECT_EQ(differing(matrix.codes, want), 0U);
  }
}

TEST(Ue8m0, APowerOfTwoThatFitsStaysAsItIs) {
  const Ue8m0Block block = requantise_ue8m0(0x7E, 0.25F);
  EXPECT_EQ(block.scale, 0.25F);
  for (std::size_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) {
      EXPECT_EQ(block.map.of[code], code);
    }
  }
}

// 1.5 * 448 needs 2^1; a block without its largest code gets the scale that its numbers need.
TEST(Ue8m0, TheScaleFollowsTheNumbersAndNotTheOldScale) {
  EXPECT_EQ(requantise_ue8m0(0x7E, 1.5F).scale, 2.0F);
  EXPECT_EQ(requantise_ue8m0(0x38, 448.0F).scale, 1.0F);
  EXPECT_EQ(requantise_ue8m0(0x38, 448.0F).map.of[0x38], 0x7E);
}

// 1e-4 / 448 = 2.2e-7, above 2^-23 = 1.2e-7.
TEST(Ue8m0, ABlockOfZerosHasTheLeastScale) {
  EXPECT_EQ(requantise_ue8m0(0, 1.0F).scale, std::ldexp(1.0F, -22));
  EXPECT_EQ(requantise_ue8m0(0, 1.0F).map.of[0x80], 0x80);
}

TEST(Ue8m0, ANanCodeOrScaleMakesTheScaleNan) {
  EXPECT_TRUE(std::isnan(requantise_ue8m0(0x7F, 1.0F).scale));
  EXPECT_TRUE(std::isnan(requantise_ue8m0(0x38, NAN).scale));
}

TEST(LargestCode, LooksAtMagnitudes) {
  EXPECT_EQ(largest_code({}), 0);
  const Bytes codes{std::byte{0x12}, std::byte{0xB0}, std::byte{0x2F}};
  EXPECT_EQ(largest_code(codes), 0x30);
}

TEST(WidenE8m0, GivesTheEnginesBitsForEveryByte) {
  const LayoutCase golden("e8m0_upcast");
  const Bytes bits = golden.bytes("out.f32_bits");
  for (std::size_t i = 0; i < 256; ++i) {
    std::uint32_t want = 0;
    std::memcpy(&want, bits.data() + i * 4, 4);
    const auto byte = std::to_integer<std::uint8_t>(golden.bytes("in.bytes")[i]);
    EXPECT_EQ(__builtin_bit_cast(std::uint32_t, widen_e8m0(byte)), want) << i;
    EXPECT_EQ(exponent_byte(widen_e8m0(byte)), byte);
  }
}

}  // namespace
}  // namespace lode::formats
