#include "lode/formats/format.h"

#include <gtest/gtest.h>

namespace lode::formats {
namespace {

TEST(FormatTable, EveryNameLeadsBackToItsRow) {
  for (const FormatInfo& row : format_table()) {
    EXPECT_EQ(info(row.format).name, row.name);
    EXPECT_EQ(format_by_name(row.name), row.format);
    EXPECT_EQ(format_by_safetensors_name(row.safetensors_name), row.format);
  }
}

// The dtype list of the safetensors format: every name with its bits.
TEST(FormatTable, KnowsEveryDtypeOfSafetensors) {
  const struct {
    std::string_view name;
    unsigned bits;
  } dtypes[] = {{"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
                {"U8", 8},      {"I8", 8},          {"F8_E4M3", 8},     {"F8_E5M2", 8},
                {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
                {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
                {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
                {"I64", 64},    {"U64", 64}};
  for (const auto& dtype : dtypes) {
    const auto format = format_by_safetensors_name(dtype.name);
    ASSERT_TRUE(format.has_value()) << dtype.name;
    EXPECT_EQ(info(*format).bits, dtype.bits) << dtype.name;
  }
  EXPECT_EQ(std::size(dtypes), format_table().size());
}

TEST(FormatTable, DoesNotGuessAtUnknownNames) {
  EXPECT_FALSE(format_by_safetensors_name("F8_E3M4").has_value());
  EXPECT_FALSE(format_by_safetensors_name("bf16").has_value());
  EXPECT_FALSE(format_by_name("").has_value());
}

TEST(EncodingTable, EveryNameLeadsBackToItsEncoding) {
  for (const EncodingInfo& row : encoding_table()) {
    EXPECT_EQ(name(row.encoding), row.name);
    EXPECT_EQ(encoding_by_name(row.name), row.encoding);
  }
  EXPECT_FALSE(encoding_by_name("q4_0").has_value());
}

TEST(Encoding, WithoutANameIsSaidToBeUnnamed) {
  EXPECT_EQ(name(Encoding{Format::kE2m1, Format::kE4m3, 1, 32, true}), "unnamed");
}

TEST(Encoding, EdgeBlocksCountWhole) {
  EXPECT_EQ(scale_rows(kFp8Block128, 136), 2U);
  EXPECT_EQ(scale_columns(kFp8Block128, 144), 2U);
  EXPECT_EQ(scale_columns(kNvfp4, 32), 2U);
  EXPECT_EQ(scale_rows(kNvfp4, 5), 5U);
  EXPECT_EQ(scale_rows(kFp8Tensor, 5), 1U);
  EXPECT_EQ(scale_columns(kFp8Channel, 77), 1U);
  EXPECT_EQ(scale_rows(kPlainBf16, 5), 0U);
  EXPECT_EQ(scale_rows(kFp8Block128, 0), 0U);
}

}  // namespace
}  // namespace lode::formats
