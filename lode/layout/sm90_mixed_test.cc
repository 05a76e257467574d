#include "lode/layout/sm90_mixed.h"

#include <gtest/gtest.h>

#include "lode/layout/test_gate_up.h"

namespace lode::layout {
namespace {

using testing::GoldenCase;
using testing::random_bytes;
using Bytes = std::vector<std::byte>;

constexpr Sm90Version kVersions[]{Sm90Version::kFlashinfer0616, Sm90Version::kFlashinfer07};

// in the golden cases of standard order: w13 of 256 rows [gate; up], swapped first, w2 of 128.
TEST(Sm90Mixed, IsWhatTheEnginesCodeComputedInBothVersions) {
  for (const Sm90Version version : kVersions) {
    const std::string which = version == Sm90Version::kFlashinfer07 ? "fi07" : "fi0616";
    const GoldenCase golden("mxfp4_standard_cutlass_bf16_sm90_" + which);
    const Bytes w13 = golden.bytes("in.w13");
    const Bytes w2_scale = golden.bytes("in.w2_scale");
    Bytes out(w13.size());
    const RowOrder order{2, 128, GateUpOrder::kUpThenGate, RowShuffle::kNone};
    sm90_codes_into({rows_of(w13, 2, 64), order, 64}, version, 0, out);
    EXPECT_EQ(out, golden.bytes("out.w13")) << which;

    Bytes scales(w2_scale.size());
    block_scales_into({rows_of(w2_scale, 1, 4), {1, 128}, 4}, sm90_scale_tile(version, 128), 0,
                      scales);
    EXPECT_EQ(scales, golden.bytes("out.w2_scale")) << which;
  }
}

TEST(Sm90Mixed, PutsEveryBitWhereTheFunctionSaysAndNoTwoInOnePlace) {
  std::mt19937 random(17);
  for (const Sm90Version version : kVersions) {
    const std::uint64_t rows = 16 * (1 + random() % 3);
    const std::uint64_t row_bytes = 32 * (1 + random() % 3);
    const Bytes in = random_bytes(rows * row_bytes, random);
    Bytes out(in.size());
    sm90_codes_into({rows_of(in, 1, row_bytes), {1, rows}, row_bytes}, version, 0, out);
    std::vector<bool> taken(out.size() * 8);
    for (std::uint64_t at = 0; at < in.size() * 8; ++at) {
      const BitPlace from{at / 8 / row_bytes, at / 8 % row_bytes,
                          static_cast<std::uint32_t>(at % 8)};
      const BitPlace to = sm90_place(version, from);
      const std::uint64_t byte = to.row * row_bytes + to.column;
      ASSERT_LT(byte, out.size());
      ASSERT_FALSE(taken[byte * 8 + to.bit]);
      taken[byte * 8 + to.bit] = true;
      ASSERT_EQ(std::to_integer<unsigned>(out[byte] >> to.bit) & 1U,
                std::to_integer<unsigned>(in[at / 8] >> from.bit) & 1U);
    }
  }
}

TEST(Sm90Mixed, PadsTilesWithZerosAndIsTheSameInUnits) {
  std::mt19937 random(18);
  for (const Sm90Version version : kVersions) {
    const Bytes in = random_bytes(40 * 50, random);  // 2 x 20 rows of 50 bytes
    Bytes padded(2 * 32 * 64);
    const RowOrder order{2, 32, GateUpOrder::kUpThenGate, RowShuffle::kNone};
    const OrderedRows from{rows_of(in, 2, 50), order, 64};
    ordered_rows_into(from, 0, padded);
    Bytes want(padded.size());
    sm90_codes_into({rows_of(padded, 1, 64), {1, 64}, 64}, version, 0, want);
    Bytes out(padded.size(), std::byte{0xEE});
    for (const std::uint64_t unit : {2U, 0U, 3U, 1U}) {
      sm90_codes_into(from, version, unit, std::span(out).subspan(unit * 1024, 1024));
    }
    EXPECT_EQ(out, want);
  }
}

TEST(Sm90Mixed, KnowsItsVersionsByTheNamesOfFlashinfer) {
  EXPECT_EQ(sm90_version_by_name("0.7"), Sm90Version::kFlashinfer07);
  EXPECT_EQ(sm90_version_by_name("0.7.x"), Sm90Version::kFlashinfer07);
  EXPECT_EQ(sm90_version_by_name("0.6.16.post3"), Sm90Version::kFlashinfer0616);
  EXPECT_EQ(sm90_version_by_name("0.6.16"), Sm90Version::kFlashinfer0616);
  EXPECT_EQ(sm90_version_by_name("0.75"), std::nullopt);
  EXPECT_EQ(sm90_version_by_name("0.8"), std::nullopt);
}

}  // namespace
}  // namespace lode::layout
