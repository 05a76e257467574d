// Scales of Marlin matrices: golden bytes of the engines' permutations and conversions, the
// figures of the specification, and inverses.
#include "lode/layout/marlin_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "lode/layout/test_gate_up.h"
#include "lode/layout/test_golden_case.h"

namespace lode::layout {
namespace {

using Bytes = std::vector<std::byte>;
using formats::Format;

template <class T>
std::vector<T> numbers(const Bytes& bytes) {
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
  return all;
}

TEST(MarlinScaleOrder, TurnsColumnsAsTheEnginesDo) {
  const testing::GoldenCase file("marlin_permute_scales");
  const auto expect = [&](const std::string& name, MarlinScaleMap map) {
    const auto from = numbers<std::uint16_t>(file.bytes("in." + name));
    const auto want = numbers<std::uint16_t>(file.bytes("out." + name));
    ASSERT_FALSE(from.empty());
    for (std::size_t at = 0; at < from.size(); ++at) {
      ASSERT_EQ(from[MarlinScaleOrder{map}.row_at(at)], want[at]) << name << " at " << at;
    }
  };
  expect("grouped16", marlin_scale_map(16, 64, false));
  expect("grouped32", marlin_scale_map(32, 64, false));
  expect("grouped32_a8", marlin_scale_map(32, 64, true));
  expect("channel", marlin_scale_map(formats::kWhole, 64, false));
  expect("group_eq_k", marlin_scale_map(64, 64, false));
  for (const char* name : {"channel96", "bias", "bias2d"}) expect(name, MarlinScaleMap::kSingle);
}

TEST(MarlinScaleOrder, IsUndoneByTheColumnOfEachRow) {
  for (const MarlinScaleMap map : {MarlinScaleMap::kGrouped, MarlinScaleMap::kSingle}) {
    for (const bool swapped : {false, true}) {
      const MarlinScaleOrder order{map, swapped};
      for (std::uint64_t column = 0; column < 256; ++column) {
        const std::uint64_t row = order.row_at(column);
        EXPECT_EQ(row / order.block(), column / order.block());
        EXPECT_EQ(order.column_of(row), column);
      }
    }
  }
}

// Weight_layouts 1.7: where the scale of row 64b + m lands.
TEST(MarlinScaleOrder, PutsNvfp4ScalesWhereTheFormulaHasThem) {
  constexpr std::uint64_t kTurn[] = {0, 2, 1, 3};
  for (std::uint64_t m = 0; m < 64; ++m) {
    const std::uint64_t want = 128 + 8 * (m % 8) + 4 * (m / 8 / 4) + kTurn[m / 8 % 4];
    EXPECT_EQ((MarlinScaleOrder{MarlinScaleMap::kGrouped, true}.column_of(128 + m)), want);
  }
}

TEST(Nvfp4Marlin, BytesAreThoseOfTheSpecification) {
  const std::uint8_t codes[] = {0x00, 0x01, 0x07, 0x08, 0x09, 0x30, 0x38, 0x3a, 0x40, 0x7e};
  const auto bytes = [&](float factor, std::size_t count) {
    const ByteTable table = nvfp4_marlin_bytes(factor, Format::kBf16);
    std::vector<int> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(table[codes[i]]);
    return all;
  };
  EXPECT_EQ(bytes(1, 10), (std::vector<int>{0, 0, 0, 0x80, 0x81, 0xa8, 0xb0, 0xb2, 0xb8, 0xf6}));
  EXPECT_EQ(bytes(2, 9), (std::vector<int>{0, 0, 0x86, 0x88, 0x89, 0xb0, 0xb8, 0xba, 0xc0}));
  EXPECT_EQ(bytes(128, 9), (std::vector<int>{0, 0xa0, 0xb6, 0xb8, 0xb9, 0xe0, 0xe8, 0xea, 0xf0}));
}

// The files are turned 0 2 1 3 already, but not otherwise.
TEST(Nvfp4Marlin, BytesAndFactorsAreTheEngines) {
  constexpr std::size_t kOrder[] = {0, 2, 1, 3};
  for (const Format format : {Format::kBf16, Format::kF16}) {
    const testing::GoldenCase file(std::string("nvfp4_marlin_process_scales_") +
                                   (format == Format::kBf16 ? "bf16" : "fp16"));
    for (const std::string name : {"max7e", "max76", "max70", "max48", "max38", "max08", "max07",
                                   "max01", "zeros", "negatives"}) {
      const bool coded = name.starts_with("max");
      const auto codes = numbers<std::uint8_t>(file.bytes((coded ? "in.codes_" : "in.") + name));
      const auto want = numbers<std::uint8_t>(file.bytes("out.s0e5m3_" + name));
      float largest = 0.0F;
      for (const std::uint8_t code : codes) {
        largest = std::max(largest, formats::decode_e4m3(code));
      }
      const float factor = nvfp4_marlin_factor(largest, format);
      EXPECT_EQ(factor, numbers<float>(file.bytes("out.factor_" + name)).at(0)) << name;
      const ByteTable table = nvfp4_marlin_bytes(factor, format);
      ASSERT_EQ(codes.size(), want.size());
      for (std::size_t at = 0; at < codes.size(); ++at) {
        ASSERT_EQ(table[codes[at - at % 4 + kOrder[at % 4]]], want[at]) << name << " at " << at;
      }
    }
  }
}

// The informative cases: a NaN is never the largest scale, and what becomes of it on a CPU.
TEST(Nvfp4Marlin, ScalesThatAreNanAreTheEnginesOnACpu) {
  for (const Format format : {Format::kBf16, Format::kF16}) {
    const testing::GoldenCase file(std::string("nvfp4_marlin_process_scales_nan_") +
                                   (format == Format::kBf16 ? "bf16" : "fp16"));
    const float factor = nvfp4_marlin_factor(1.0F, format);  // code 0x38 is the largest number
    EXPECT_EQ(factor, numbers<float>(file.bytes("out.factor")).at(0));
    const auto want = numbers<std::uint8_t>(file.bytes("out.s0e5m3"));
    const ByteTable table = nvfp4_marlin_bytes(factor, format);
    EXPECT_EQ(table[0x7F], want.at(0));
    EXPECT_EQ(table[0xFF], want.at(3));
    EXPECT_EQ(table[0x38], want.at(1));  // turned 0 2 1 3
  }
}

TEST(Nvfp4Marlin, BytesThatAreNotFlushedGiveTheScaleTimesTheFactor) {
  for (const float factor : {1.0F, 2.0F, 64.0F, 131072.0F}) {
    const ByteTable table = nvfp4_marlin_bytes(factor, Format::kBf16);
    for (std::uint32_t code = 1; code < 0x7F; ++code) {
      const float scaled = formats::decode_e4m3(static_cast<std::uint8_t>(code)) * factor;
      if (scaled > formats::kE4m3Max || table[code] == 0) continue;
      EXPECT_EQ(formats::decode_e4m3(e4m3_of_s0e5m3(table[code])), scaled) << code;
    }
  }
  EXPECT_EQ(e4m3_of_s0e5m3(0), 0);
  EXPECT_EQ(e4m3_of_s0e5m3(0xFC), 0x7F);
  EXPECT_EQ(e4m3_of_s0e5m3(0xFF), 0x7F);
}

TEST(Nvfp4Marlin, GlobalScalesAreTheEngines) {
  for (const Format format : {Format::kBf16, Format::kF16}) {
    const testing::GoldenCase file(std::string("nvfp4_marlin_global_scale_") +
                                   (format == Format::kBf16 ? "bf16" : "fp16"));
    const auto scales = numbers<float>(file.bytes("in.global_scale"));
    const auto want = numbers<float>(file.bytes("out.out"));
    ASSERT_FALSE(scales.empty());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      EXPECT_EQ(nvfp4_marlin_global(scales[i], 1.0F, format), want[i]);
      EXPECT_EQ(nvfp4_scale_of_global(want[i], format), scales[i]);
      EXPECT_EQ(nvfp4_marlin_global(scales[i], 4.0F, format), want[i] / 4.0F);
    }
  }
}

TEST(MxMarlin, BytesPassThroughTheActivationsFormat) {
  const ByteTable wide = mx_marlin_bytes(Format::kBf16, false);
  const ByteTable half = mx_marlin_bytes(Format::kF16, false);
  const ByteTable more = mx_marlin_bytes(Format::kBf16, true);
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(wide[code], code);
    EXPECT_EQ(half[code], code < 103 ? 0U : code > 142 ? 255U : code);
    EXPECT_EQ(more[code], code > 249 ? 255U : code + 6);
  }
}

TEST(Fp8Marlin, ScalesAreRoundedBeforeTheyAreMoved) {
  // 1 + 2^-8 lies between two numbers of BF16 and goes to the even one; F16 holds it.
  EXPECT_EQ(scale_of_fp8_marlin(fp8_marlin_scale(1.00390625F, Format::kBf16), Format::kBf16), 1.0F);
  EXPECT_EQ(scale_of_fp8_marlin(fp8_marlin_scale(1.00390625F, Format::kF16), Format::kF16),
            1.00390625F);
  EXPECT_EQ(fp8_marlin_scale(1.0F, Format::kBf16), (120U + 127U) << 7);
  EXPECT_EQ(fp8_marlin_scale(1.0F, Format::kF16), (8U + 15U) << 10);
  EXPECT_EQ(fp8_marlin_scale(256.0F, Format::kBf16), 0x7F80U);
  EXPECT_EQ(fp8_marlin_scale(256.0F, Format::kF16), 0x7C00U);
}

TEST(MarlinScaleBytes, StandWhereTheFunctionSaysForAnyShapeAndAnyUnits) {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    MarlinScaleBytes scales;
    scales.columns = {random() % 2 == 0 ? MarlinScaleMap::kGrouped : MarlinScaleMap::kSingle,
                      random() % 2 == 0};
    scales.rows.num_halves = 1 + random() % 2;
    scales.rows.half_rows = (1 + random() % 3) * scales.columns.block();
    if (scales.columns.map == MarlinScaleMap::kSingle && random() % 2 == 0) {
      scales.rows.half_rows += 32;  // a block of 32 behind the last of 64
    }
    const std::uint64_t groups = 1 + random() % 150, there = groups - random() % groups;
    const std::uint64_t half_rows = scales.rows.half_rows - random() % 30;
    const Bytes bytes = testing::random_bytes(scales.rows.num_halves * half_rows * there, random);
    scales.source = rows_of(bytes, scales.rows.num_halves, there);
    for (ByteTable& table : scales.tables) {
      for (std::uint8_t& byte : table) byte = static_cast<std::uint8_t>(random());
    }
    const std::uint64_t columns = scales.rows.rows();
    Bytes out(groups * columns);
    for (std::uint64_t group = 0; group < groups;) {
      const std::uint64_t some = std::min<std::uint64_t>(1 + random() % 90, groups - group);
      marlin_scale_bytes(scales, group, std::span(out).subspan(group * columns, some * columns));
      group += some;
    }
    for (std::uint64_t position = 0; position < columns; ++position) {
      const HalfRow at = scales.rows.at(position);
      const auto row = scales.source.row(at);
      for (std::uint64_t group = 0; group < groups; ++group) {
        const auto code =
            group < row.size() ? static_cast<std::uint8_t>(row[group]) : std::uint8_t{0};
        ASSERT_EQ(
            static_cast<std::uint8_t>(out[group * columns + scales.columns.column_of(position)]),
            scales.tables[at.half][code]);
      }
    }
  }
}

TEST(MarlinPadding, IsTheEnginesForDenseLayersAndExperts) {
  const testing::GoldenCase dense("marlin_padded_nk_table");
  const auto sizes = numbers<std::int32_t>(dense.bytes("in.nkg"));
  const auto padded = numbers<std::int32_t>(dense.bytes("out.padded"));
  const auto count = [](std::int32_t size) {
    return size < 0 ? std::uint64_t{0} : static_cast<std::uint64_t>(size);
  };
  ASSERT_FALSE(sizes.empty());
  for (std::size_t i = 0; i < sizes.size() / 3; ++i) {
    const auto got =
        marlin_padded_size({count(sizes[3 * i]), count(sizes[3 * i + 1])}, count(sizes[3 * i + 2]));
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, (MarlinSize{count(padded[2 * i]), count(padded[2 * i + 1])}));
  }
  const testing::GoldenCase experts("marlin_moe_padded_intermediate_table");
  const auto pairs = numbers<std::int32_t>(experts.bytes("in.ng"));
  const auto want = numbers<std::int32_t>(experts.bytes("out.padded"));
  ASSERT_FALSE(pairs.empty());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(*marlin_padded_intermediate(count(pairs[2 * i]), count(pairs[2 * i + 1])),
              count(want[i]));
  }
}

TEST(MarlinPadding, RefusesSizesOfNoMatrix) {
  EXPECT_FALSE(marlin_padded_size({~std::uint64_t{0}, 64}, 0));
  EXPECT_FALSE(marlin_padded_size({64, ~std::uint64_t{0}}, 0));
  EXPECT_FALSE(marlin_padded_size({64, 64}, std::uint64_t{1} << 40));
  EXPECT_FALSE(marlin_padded_intermediate(~std::uint64_t{0}, 0));
  EXPECT_FALSE(marlin_padded_intermediate(64, std::uint64_t{1} << 50));
}

}  // namespace
}  // namespace lode::layout
