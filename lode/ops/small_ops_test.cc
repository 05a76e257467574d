#include <gtest/gtest.h>

#include <cmath>

#include "lode/ops/embedding.h"
#include "lode/ops/norm.h"
#include "lode/ops/rope.h"
#include "lode/ops/test_weights.h"

namespace lode::ops {
namespace {

TEST(RmsNorm, DividesByTheRootMeanSquareAndMultipliesByTheWeight) {
  const TestCompute compute(2, Mode::kFast);
  const TestRows x(5, 48, Mode::kExact, 1), out(5, 48, Mode::kFast, 2);
  std::vector<float> weight(48);
  for (std::size_t i = 0; i < 48; ++i) weight[i] = 0.5F + static_cast<float>(i);
  rms_norm_rows(*compute, {weight, 1e-3F}, *x, *out, 5, all_forms());
  for (std::size_t row = 0; row < 5; ++row) {
    double squares = 0.0;
    for (const float value : x->row(row)) squares += double{value} * double{value};
    const double factor = 1.0 / std::sqrt(squares / 48.0 + double{1e-3F});
    for (std::size_t i = 0; i < 48; ++i) {
      const double want = double{x->row(row)[i]} * factor * double{weight[i]};
      // Half of the sum's error by the root, and one rounding each of root, quotient, products.
      const double bound = (0.5 * sum_error(48) + 5.0 * std::ldexp(1.0, -24)) * std::abs(want);
      ASSERT_NEAR(double{out->row(row)[i]}, want, bound);
    }
  }
}

TEST(RmsNorm, OfHeadsTakesEachHeadAlone) {
  const TestCompute compute(1, Mode::kExact);
  std::vector<float> heads = {3.0F, 4.0F, 30.0F, 40.0F};
  const std::vector<float> weight = {1.0F, 2.0F};
  rms_norm_heads(*compute, {weight, 0.0F}, heads);
  // Root of the mean square of (3, 4) is 5 / sqrt(2).
  EXPECT_NEAR(heads[0], 3.0 * std::sqrt(2.0) / 5.0, 1e-6);
  EXPECT_NEAR(heads[3], 2.0 * 4.0 * std::sqrt(2.0) / 5.0, 1e-6);
}

TEST(Rope, TurnsPairsOfHalvesAndLeavesTheRest) {
  const std::vector<float> frequencies = {1.0F, 0.01F};
  std::vector<float> cosines(2), sines(2);
  rope_angles(frequencies, 1.5F, 7, cosines, sines);
  EXPECT_NEAR(cosines[0], 1.5 * std::cos(7.0), 2e-7);
  EXPECT_NEAR(sines[1], 1.5 * std::sin(0.07), 2e-7);
  std::vector<float> heads = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 1.0F, 0.0F, 0.0F, 0.0F, 9.0F};
  rotate_heads(heads, 5, cosines, sines);
  EXPECT_NEAR(heads[0], 1.5 * (std::cos(7.0) - 3.0 * std::sin(7.0)), 1e-6);
  EXPECT_NEAR(heads[2], 1.5 * (std::sin(7.0) + 3.0 * std::cos(7.0)), 1e-6);
  EXPECT_EQ(heads[4], 5.0F);
  EXPECT_NEAR(heads[7], 1.5 * std::sin(7.0), 1e-6);
  EXPECT_EQ(heads[9], 9.0F);
}

TEST(Embedding, GivesTheRowsOfTheTableExactly) {
  const TestCompute compute(2, Mode::kFast);
  const std::vector<std::int32_t> ids = {36, 0, 17, 17};
  for (const std::string_view name : {"bf16", "f32", "f16", "fp8-block", "nvfp4"}) {
    const TestWeights table(*formats::encoding_by_name(name), 37, 160, 1);
    const TestPanels panels(table);
    const TestRows out(4, 160, Mode::kExact, 2);
    embed(*compute, panels.view(), ids, *out);
    const std::vector<float> values = table.values();
    for (std::size_t i = 0; i < 4; ++i) {
      const auto want = values.begin() + ids[i] * 160;
      EXPECT_TRUE(std::equal(want, want + 160, out->row(i).begin())) << name << i;
    }
  }
}

TEST(Embedding, ReadsRowMajorTables) {
  const TestCompute compute(1, Mode::kExact);
  const std::vector<std::uint16_t> codes = {0x3F80, 0x4000, 0xC040, 0x0000};  // 1, 2, -3, 0
  const tensor::TensorView table(std::as_bytes(std::span(codes)),
                                 {formats::kPlainBf16, tensor::Layout::kRowMajor, {2, 2}});
  const TestRows out(2, 2, Mode::kExact, 1);
  embed(*compute, table, std::vector<std::int32_t>{1, 0}, *out);
  EXPECT_EQ(out.numbers(), (std::vector<float>{-3.0F, 0.0F, 1.0F, 2.0F}));
}

}  // namespace
}  // namespace lode::ops
