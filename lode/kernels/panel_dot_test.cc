// Every ISA against the scalar law, bit for bit, for the exact and the fast kernels of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "lode/kernels/test_panel_dot.h"

namespace lode::kernels {
namespace {

struct DotCase {
  std::size_t isa;  // index into available()
  PanelKind kind;
  bool fast;
};

class PanelDotOfIsa : public testing::TestWithParam<DotCase> {
 protected:
  const KernelTable& scalar() const { return available().front(); }
  const KernelTable& isa() const { return available()[GetParam().isa]; }
  std::size_t at() const { return static_cast<std::size_t>(GetParam().kind); }
  PanelDotFn dot_of(const KernelTable& table) const {
    return GetParam().fast ? table.fast_dot[at()] : table.exact_dot[at()];
  }
  ActivationForm form() const {
    return GetParam().fast ? scalar().fast_form[at()] : ActivationForm::kF32;
  }
  TestActivations pack(const std::vector<float>& x, std::size_t k) const {
    return TestActivations(scalar(), form(), x, k);
  }
  void expect_equal(TestMatrix& matrix, const TestActivations& x,
                    const std::vector<std::uint32_t>& rows) const {
    const std::vector<float> want = run_dot(dot_of(scalar()), matrix, x, rows);
    const std::vector<float> got = run_dot(dot_of(isa()), matrix, x, rows);
    const std::ptrdiff_t at = first_difference(want, got);
    ASSERT_EQ(at, -1) << "k " << matrix.k() << ", " << rows.size() << " tokens, row "
                      << static_cast<std::size_t>(at) % matrix.rows() << ": want "
                      << want[static_cast<std::size_t>(at)] << ", got "
                      << got[static_cast<std::size_t>(at)];
  }
};

TEST_P(PanelDotOfIsa, AsksForTheSameActivations) {
  EXPECT_EQ(isa().fast_form[at()], scalar().fast_form[at()]);
}

TEST_P(PanelDotOfIsa, EqualsScalarForEveryLengthAndTokenCount) {
  for (const std::size_t k : kLengths) {
    TestMatrix matrix(shape_of(GetParam().kind), k == 2880 ? 1 : 3, k);
    fill_random(matrix, static_cast<std::uint32_t>(k));
    const TestActivations x = pack(random_rows(9, k, 7), k);
    for (std::size_t tokens = 1; tokens <= 9; ++tokens) {
      ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, first_rows(tokens)));
    }
  }
}

TEST_P(PanelDotOfIsa, EqualsScalarForEveryPanelCount) {
  for (std::size_t panels = 1; panels <= 6; ++panels) {
    TestMatrix matrix(shape_of(GetParam().kind), panels, 288);
    fill_random(matrix, 5);
    const TestActivations x = pack(random_rows(3, 288, 8), 288);
    ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, first_rows(1)));
    ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, first_rows(3)));
  }
}

TEST_P(PanelDotOfIsa, GathersRows) {
  TestMatrix matrix(shape_of(GetParam().kind), 2, 160);
  fill_random(matrix, 11);
  const TestActivations x = pack(random_rows(6, 160, 9), 160);
  ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, {5, 0, 0, 3, 5, 2, 1, 1, 4, 5, 3}));
}

TEST_P(PanelDotOfIsa, GivesATokenTheSameBitsAloneAndInAnyBatch) {
  constexpr std::size_t kRows = 17, kLength = 208;
  TestMatrix matrix(shape_of(GetParam().kind), 3, kLength);
  fill_random(matrix, 12);
  const TestActivations x = pack(random_rows(kRows, kLength, 10), kLength);
  const std::vector<float> together = run_dot(dot_of(isa()), matrix, x, first_rows(kRows));
  for (std::uint32_t t = 0; t < kRows; ++t) {
    const std::vector<float> alone = run_dot(dot_of(isa()), matrix, x, {t});
    const auto begin = together.begin() + static_cast<std::ptrdiff_t>(t * matrix.rows());
    const std::vector<float> part(begin, begin + static_cast<std::ptrdiff_t>(matrix.rows()));
    ASSERT_EQ(first_difference(alone, part), -1) << "token " << t;
  }
}

TEST_P(PanelDotOfIsa, WritesNothingForNoTokens) {
  TestMatrix matrix(shape_of(GetParam().kind), 2, 64);
  const TestActivations x = pack(random_rows(1, 64, 1), 64);
  EXPECT_TRUE(run_dot(dot_of(isa()), matrix, x, {}).empty());
}

TEST_P(PanelDotOfIsa, MakesZerosOfZeroRowsAndOfZeroActivations) {
  TestMatrix zero(shape_of(GetParam().kind), 2, 96);
  const TestActivations x = pack(random_rows(5, 96, 1), 96);
  EXPECT_THAT(run_dot(dot_of(isa()), zero, x, first_rows(5)), testing::Each(0.0F));
  TestMatrix matrix(shape_of(GetParam().kind), 2, 96);
  fill_random(matrix, 13);
  const TestActivations nothing = pack(std::vector<float>(3 * 96, 0.0F), 96);
  EXPECT_THAT(run_dot(dot_of(isa()), matrix, nothing, first_rows(3)), testing::Each(0.0F));
}

TEST_P(PanelDotOfIsa, EqualsScalarForInfiniteNanAndSubnormalActivations) {
  TestMatrix matrix(shape_of(GetParam().kind), 2, 136);
  fill_random(matrix, 14);
  std::vector<float> values = random_rows(6, 136, 15);
  values[3] = std::numeric_limits<float>::infinity();
  values[136 + 135] = -std::numeric_limits<float>::infinity();
  values[2 * 136 + 64] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t k = 0; k < 136; ++k) values[3 * 136 + k] *= 1e-42F;
  for (std::size_t k = 0; k < 136; ++k) values[4 * 136 + k] *= 1e36F;
  const TestActivations x = pack(values, 136);
  ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, first_rows(6)));
  ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, {2}));
}

// Each row holds one code throughout, each round another scale, and x is 1 and then zeros.
TEST_P(PanelDotOfIsa, EqualsScalarForEveryCodeUnderEveryScale) {
  const PanelShape shape = shape_of(GetParam().kind);
  const std::uint32_t codes = shape.bits >= 16 ? 1u << 16 : 1u << shape.bits;
  std::vector<float> one(32, 0.0F);
  one[0] = 1.0F;
  const TestActivations x = pack(one, 32);
  const std::uint32_t scales = shape.scale_bytes == 1 ? 256 : 1;
  for (std::uint32_t scale = 0; scale < scales; ++scale) {
    TestMatrix matrix(shape, codes / 16, shape.bits == 16 ? 2 : 32);
    for (std::uint32_t row = 0; row < matrix.rows(); ++row) {
      const std::uint32_t code = shape.bits == 32 ? row << 16 | row : row;
      for (std::size_t k = 0; k < matrix.k(); ++k) matrix.code(row, k) = k == 0 ? code : 0;
      for (std::size_t group = 0; group < matrix.groups(); ++group) {
        matrix.stored_scale(row, group) = shape.scale_bytes == 1 ? scale : 0x3EAAAAABu + row;
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, first_rows(1))) << "scale " << scale;
  }
}

TEST_P(PanelDotOfIsa, EqualsScalarForEveryGroupWidthAndMatrixScale) {
  using formats::TensorScale;
  PanelShape shape = shape_of(GetParam().kind);
  for (const std::uint32_t group_k : {32u, 64u, 128u}) {
    if (shape.scale_bytes == 4) shape.group_k = group_k;
    TestMatrix matrix(shape, 2, 272);
    fill_random(matrix, group_k);
    const TestActivations x = pack(random_rows(5, 272, 16), 272);
    for (const TensorScale rule :
         {TensorScale::kNone, TensorScale::kMultiplier, TensorScale::kDivisor}) {
      matrix.scale = {GetParam().kind == PanelKind::kNvfp4 ? 3.7F : 1.0F, rule};
      if (matrix.scale.rule != TensorScale::kNone && shape.scale_bytes == 0) continue;
      ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, first_rows(5)));
      ASSERT_NO_FATAL_FAILURE(expect_equal(matrix, x, {4}));
    }
  }
}

std::vector<DotCase> dot_cases() {
  std::vector<DotCase> cases;
  for (std::size_t isa = 0; isa < available().size(); ++isa) {
    for (const PanelKind kind : kAllKinds) {
      cases.push_back({isa, kind, false});
      cases.push_back({isa, kind, true});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, PanelDotOfIsa, testing::ValuesIn(dot_cases()),
                         [](const auto& tested) {
                           const DotCase& at = tested.param;
                           return std::string(available()[at.isa].isa) + name_of(at.kind) +
                                  (at.fast ? "Fast" : "Exact");
                         });

}  // namespace
}  // namespace lode::kernels
