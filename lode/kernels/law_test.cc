// The law itself against the standards and plain double precision, within derived bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/kernels/test_panel_dot.h"

namespace lode::kernels {
namespace {

constexpr double kUnit = 0x1p-24;  // half an ulp of 1: a rounding's relative error

const KernelTable& scalar() { return available().front(); }

struct DoubleDot {
  double value = 0.0;
  double magnitude = 0.0;   // sum of |w| |x|
  double weight_sum = 0.0;  // sum of |w| * the scale of x's block
};

DoubleDot double_dot(const TestMatrix& matrix, std::size_t row, const float* x) {
  DoubleDot sum;
  for (std::size_t begin = 0; begin < matrix.k(); begin += 32) {
    const std::size_t end = std::min(begin + 32, matrix.k());
    double largest = 0.0;
    for (std::size_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(double{x[k]}));
    for (std::size_t k = begin; k < end; ++k) {
      const double weight = matrix.weight(row, k);
      sum.value += weight * double{x[k]};
      sum.magnitude += std::fabs(weight * double{x[k]});
      sum.weight_sum += std::fabs(weight) * largest / 127.0;
    }
  }
  return sum;
}

class LawOfKind : public testing::TestWithParam<PanelKind> {
 protected:
  std::size_t at() const { return static_cast<std::size_t>(GetParam()); }
};

// Roundings of one product's way into the sum: multiplier, weight, at most k/4 + 1 fused steps of
// its chain, two joins. (1 + u)^n - 1 < 1.01 n u for these n.
TEST_P(LawOfKind, ExactDotIsWithinItsRoundingsOfDoublePrecision) {
  for (const std::size_t k : kLengths) {
    TestMatrix matrix(shape_of(GetParam()), 1, k);
    fill_random(matrix, 100 + static_cast<std::uint32_t>(k));
    const std::vector<float> x = random_rows(2, k, 3);
    const TestActivations rows(scalar(), ActivationForm::kF32, x, k);
    const std::vector<float> y = run_dot(scalar().exact_dot[at()], matrix, rows, first_rows(2));
    ASSERT_EQ(y.size(), 32u);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const DoubleDot want = double_dot(matrix, i % 16, &x[i / 16 * k]);
      const double steps = static_cast<double>(k) / 4 + 1 + 4;
      EXPECT_LE(std::fabs(double{y[i]} - want.value), 1.01 * steps * kUnit * want.magnitude)
          << "k " << k << " row " << i;
    }
  }
}

// Plain kinds and E4M3 take f32 activations; E4M3 rounds a product at most 128/4 + 1 times in its
// chain, twice in the joins, once a group of 128 and twice at the end.
class LawOfPlainKind : public LawOfKind {};
TEST_P(LawOfPlainKind, FastDotIsWithinItsRoundingsOfDoublePrecision) {
  if (GetParam() != PanelKind::kE4m3) {
    EXPECT_EQ(scalar().fast_dot[at()], scalar().exact_dot[at()]);
  }
  EXPECT_EQ(scalar().fast_form[at()], ActivationForm::kF32);
  for (const std::size_t k : kLengths) {
    TestMatrix matrix(shape_of(GetParam()), 1, k);
    fill_random(matrix, 400 + static_cast<std::uint32_t>(k));
    const std::vector<float> x = random_rows(2, k, 5);
    const TestActivations rows(scalar(), ActivationForm::kF32, x, k);
    const std::vector<float> y = run_dot(scalar().fast_dot[at()], matrix, rows, first_rows(2));
    ASSERT_EQ(y.size(), 32u);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const DoubleDot want = double_dot(matrix, i % 16, &x[i / 16 * k]);
      const auto length = static_cast<double>(k);
      const double steps =
          GetParam() == PanelKind::kE4m3 ? 32 + 1 + 2 + length / 128 + 1 + 2 : length / 4 + 1 + 4;
      EXPECT_LE(std::fabs(double{y[i]} - want.value), 1.01 * steps * kUnit * want.magnitude)
          << "k " << k << " row " << i;
    }
  }
}

// |x - q s| <= s/2 and a little for the division's own rounding (127 u s); then as many roundings
// as parts of 16 or 32 k, four for the scales and the end, on magnitudes |w| (|x| + s).
class LawOfPackedKind : public LawOfKind {};
TEST_P(LawOfPackedKind, FastDotIsWithinHalfAStepOfEveryActivation) {
  for (const std::size_t k : kLengths) {
    TestMatrix matrix(shape_of(GetParam()), 1, k);
    fill_random(matrix, 200 + static_cast<std::uint32_t>(k));
    const std::vector<float> x = random_rows(2, k, 4);
    const TestActivations rows(scalar(), scalar().fast_form[at()], x, k);
    const std::vector<float> y = run_dot(scalar().fast_dot[at()], matrix, rows, first_rows(2));
    ASSERT_EQ(y.size(), 32u);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const DoubleDot want = double_dot(matrix, i % 16, &x[i / 16 * k]);
      const double steps = static_cast<double>(k) / 16 + 1 + 4;
      const double rounding = 1.01 * steps * kUnit * (want.magnitude + want.weight_sum);
      const double codes = (0.5 + 130 * kUnit) * want.weight_sum;
      EXPECT_LE(std::fabs(double{y[i]} - want.value), codes + rounding)
          << "k " << k << " row " << i;
    }
  }
}

TEST_P(LawOfKind, DecodesRowsToTheStandardsValues) {
  for (const std::size_t k : kLengths) {
    TestMatrix matrix(shape_of(GetParam()), 1, k);
    fill_random(matrix, 300 + static_cast<std::uint32_t>(k));
    matrix.scale = {};  // then code * scale is a single rounding, or none
    const std::byte* panel = matrix.panels();
    for (std::size_t row = 0; row < 16; ++row) {
      std::vector<float> out(k);
      scalar().decode_row(matrix.shape(), matrix.scale, panel, row, k, out.data());
      for (std::size_t i = 0; i < k; ++i) {
        ASSERT_EQ(out[i], static_cast<float>(matrix.weight(row, i))) << row << ", " << i;
      }
    }
  }
}

class LawOfScaledKind : public LawOfKind {};
TEST_P(LawOfScaledKind, DecodesEveryCodeUnderEveryScale) {
  const PanelShape shape = shape_of(GetParam());
  const std::uint32_t codes = 1u << shape.bits;
  for (std::uint32_t scale = 0; scale < (shape.scale_bytes == 1 ? 256u : 3u); ++scale) {
    TestMatrix matrix(shape, codes / 16, 1);
    for (std::uint32_t row = 0; row < codes; ++row) {
      matrix.code(row, 0) = row;
      matrix.stored_scale(row, 0) = shape.scale_bytes == 1 ? scale : 0x3F800000u + (scale << 23);
    }
    const std::byte* panels = matrix.panels();
    for (std::uint32_t row = 0; row < codes; ++row) {
      float got = 0.0F;
      scalar().decode_row(shape, {}, panels + row / 16 * shape.panel_bytes(1), row % 16, 1, &got);
      ASSERT_TRUE(same_number(got, static_cast<float>(matrix.weight(row, 0))))
          << "code " << row << " scale " << scale;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LawOfKind, testing::ValuesIn(kAllKinds),
                         [](const auto& tested) { return name_of(tested.param); });

INSTANTIATE_TEST_SUITE_P(All, LawOfPlainKind,
                         testing::Values(PanelKind::kF32, PanelKind::kF16, PanelKind::kBf16,
                                         PanelKind::kE4m3),
                         [](const auto& tested) { return name_of(tested.param); });
INSTANTIATE_TEST_SUITE_P(All, LawOfPackedKind,
                         testing::Values(PanelKind::kI8, PanelKind::kMxfp4, PanelKind::kNvfp4),
                         [](const auto& tested) { return name_of(tested.param); });
INSTANTIATE_TEST_SUITE_P(All, LawOfScaledKind,
                         testing::Values(PanelKind::kE4m3, PanelKind::kI8, PanelKind::kMxfp4,
                                         PanelKind::kNvfp4),
                         [](const auto& tested) { return name_of(tested.param); });

// ModelOpt and compressed-tensors round the block multiplier first and the product once more.
TEST(Law, RoundsTheNvfp4MultiplierBeforeTheProduct) {
  TestMatrix matrix(shape_of(PanelKind::kNvfp4), 1, 16);
  matrix.code(0, 0) = 0x7;           // 6
  matrix.stored_scale(0, 0) = 0x3D;  // 1.625
  matrix.scale = {0x1.555556p-10F, formats::TensorScale::kMultiplier};
  float out[16];
  scalar().decode_row(matrix.shape(), matrix.scale, matrix.panels(), 0, 16, out);
  EXPECT_EQ(out[0], 6.0F * (1.625F * 0x1.555556p-10F));
  matrix.scale.rule = formats::TensorScale::kDivisor;
  scalar().decode_row(matrix.shape(), matrix.scale, matrix.panels(), 0, 16, out);
  EXPECT_EQ(out[0], 6.0F * (1.625F / 0x1.555556p-10F));
}

// Chains are seen where rounding tells them apart: 2^24 swallows a 1 that comes after it in its
// own chain, and not one that comes in another.
TEST(Law, SumsInFourChainsOfKModFour) {
  TestMatrix matrix(shape_of(PanelKind::kF32), 1, 8);
  for (std::size_t k = 0; k < 8; ++k) matrix.code(0, k) = 0x3F800000u;
  std::vector<float> x(8, 0.0F);
  x[0] = 0x1p24F;
  x[4] = 1.0F;  // same chain: lost
  x[1] = 1.0F;
  x[5] = 1.0F;  // another chain: 2 in all
  const TestActivations rows(scalar(), ActivationForm::kF32, x, 8);
  const std::vector<float> y = run_dot(scalar().exact_dot[0], matrix, rows, first_rows(1));
  EXPECT_EQ(y[0], 0x1p24F + 2.0F);
}

}  // namespace
}  // namespace lode::kernels
