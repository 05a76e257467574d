#include "lode/ops/linear.h"

#include <gtest/gtest.h>

#include <array>

#include "lode/ops/test_weights.h"

namespace lode::ops {
namespace {

struct Case {
  std::string_view encoding;
  Mode mode;
};

class Linear : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint64_t kOutputs = 83, kLength = 160;  // neither fills its last block
  const formats::Encoding encoding_ = *formats::encoding_by_name(GetParam().encoding);
  const Mode mode_ = GetParam().mode;
  const TestWeights weights_{encoding_, kOutputs, kLength, 1};
  const TestPanels panels_{weights_};
  const Matrix matrix_ = matrix(panels_.view());
  const std::vector<float> bias_ = std::vector<float>(kOutputs, 0.25F);

  std::vector<float> run(std::size_t threads, std::size_t first, std::size_t count) const {
    const TestCompute compute(threads, mode_);
    const TestRows all(kRows, kLength, mode_, 2);
    const TestRows x(count, kLength, mode_, 3);
    for (std::size_t row = 0; row < count; ++row) {
      std::copy_n(all->row(first + row).begin(), kLength, x->row(row).begin());
    }
    pack_rows(*compute, *x, count, forms_of(*compute, matrix_));
    std::vector<float> y(count * kOutputs);
    const LinearJob job{&matrix_, bias_, y, kOutputs, false};
    linear(*compute, *x, count, {&job, 1});
    return y;
  }
  static constexpr std::size_t kRows = 70;  // more than a block of rows
};

struct Wanted {
  double sum = 0.0;
  double bound = 0.0;
};

Wanted wanted(std::span<const float> x, std::span<const float> weights, bool is_int8) {
  double sum = 0.0, magnitude = 0.25, quantisation = 0.0;
  for (std::size_t block = 0; block < x.size(); block += 32) {
    double largest = 0.0, weight_sum = 0.0;
    for (std::size_t k = block; k < block + 32; ++k) {
      const double product = double{x[k]} * double{weights[k]};
      sum += product;
      magnitude += std::abs(product);
      largest = std::max(largest, std::abs(double{x[k]}));
      weight_sum += std::abs(double{weights[k]});
    }
    if (is_int8) quantisation += largest / 127.0 * 0.5 * weight_sum;
  }
  return {sum, 1.001 * quantisation + sum_error(x.size() + 8) * magnitude};
}

// Exact: f32 sums only. Fast int8: every x is off by at most half a step of its block of 32, which
// is amax / 127; the f32 part rounds as above.
TEST_P(Linear, IsTheSumOfProductsWithinTheDerivedBound) {
  const std::vector<float> weights = weights_.values();
  const TestCompute compute(1, mode_);
  const bool is_int8 = (*compute).form(matrix_.shape.kind) != kernels::ActivationForm::kF32;
  const TestRows x(kRows, kLength, mode_, 2);
  const std::vector<float> y = run(1, 0, kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t output = 0; output < kOutputs; ++output) {
      const Wanted want =
          wanted(x->row(row), std::span(weights).subspan(output * kLength, kLength), is_int8);
      ASSERT_NEAR(double{y[row * kOutputs + output]}, want.sum + 0.25, want.bound)
          << row << " " << output;
    }
  }
}

TEST_P(Linear, GivesTheSameBitsForAnyThreadsAndAnyRowsTogether) {
  const std::vector<float> want = run(1, 0, kRows);
  EXPECT_EQ(run(2, 0, kRows), want);
  EXPECT_EQ(run(3, 0, kRows), want);
  for (const std::size_t row : {0U, 1U, 63U, 64U, 69U}) {
    const auto at = want.begin() + static_cast<std::ptrdiff_t>(row * kOutputs);
    EXPECT_EQ(run(2, row, 1), std::vector<float>(at, at + kOutputs)) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, Linear,
                         testing::Values(Case{"f32", Mode::kExact}, Case{"bf16", Mode::kExact},
                                         Case{"bf16", Mode::kFast}, Case{"f16", Mode::kFast},
                                         Case{"mxfp4", Mode::kExact}, Case{"mxfp4", Mode::kFast},
                                         Case{"nvfp4", Mode::kExact}, Case{"nvfp4", Mode::kFast},
                                         Case{"fp8-block", Mode::kExact},
                                         Case{"fp8-block", Mode::kFast},
                                         Case{"fp8-channel", Mode::kFast}),
                         [](const auto& tested) {
                           std::string name(tested.param.encoding);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (tested.param.mode == Mode::kExact ? "_exact" : "_fast");
                         });

TEST(LinearJobs, ShareOneForkAndAddOnlyWhereAsked) {
  const TestWeights a(formats::kPlainF32, 40, 32, 1), b(formats::kPlainF32, 24, 32, 2);
  const TestPanels panels_a(a), panels_b(b);
  const Matrix matrix_a = matrix(panels_a.view()), matrix_b = matrix(panels_b.view());
  const TestCompute compute(2, Mode::kExact);
  const TestRows x(2, 32, Mode::kExact, 3);
  std::vector<float> alone_a(80), alone_b(48), y_a(80, 5.0F), y_b(48, 5.0F);
  const LinearJob only_a{&matrix_a, {}, alone_a, 40, false};
  const LinearJob only_b{&matrix_b, {}, alone_b, 24, false};
  linear(*compute, *x, 2, {&only_a, 1});
  linear(*compute, *x, 2, {&only_b, 1});
  const std::array jobs = {LinearJob{&matrix_a, {}, y_a, 40, false},
                           LinearJob{&matrix_b, {}, y_b, 24, true}};
  linear(*compute, *x, 2, jobs);
  EXPECT_EQ(y_a, alone_a);
  for (float& value : alone_b) value += 5.0F;
  EXPECT_EQ(y_b, alone_b);
}

TEST(GateUpPanels, AreTheTwoMatricesWithTheirOwnScales) {
  TestWeights gate(formats::kNvfp4, 40, 64, 1), up(formats::kNvfp4, 40, 64, 2);
  up.matrix_scale() = 3.0F;
  const TestPanels together(gate, up), gate_alone(gate), up_alone(up);
  const GateUp both = gate_up(together.view());
  const Matrix gate_matrix = matrix(gate_alone.view()), up_matrix = matrix(up_alone.view());
  const TestCompute compute(1, Mode::kExact);
  const TestRows x(1, 64, Mode::kExact, 3);
  std::vector<float> y(4 * 40);
  const auto part = [&](std::size_t i) { return std::span(y).subspan(i * 40, 40); };
  const std::array jobs = {LinearJob{&both.gate, {}, part(0), 40, false},
                           LinearJob{&gate_matrix, {}, part(1), 40, false},
                           LinearJob{&both.up, {}, part(2), 40, false},
                           LinearJob{&up_matrix, {}, part(3), 40, false}};
  linear(*compute, *x, 1, jobs);
  EXPECT_TRUE(std::equal(part(0).begin(), part(0).end(), part(1).begin()));
  EXPECT_TRUE(std::equal(part(2).begin(), part(2).end(), part(3).begin()));
  EXPECT_NE(part(0)[0], part(2)[0]);
}

TEST(PanelsPerTask, FitTheTileAndGiveEveryThreadSeveralTasks) {
  EXPECT_EQ(panels_per_task(1000, 1, 1), kMaxTaskPanels);
  EXPECT_EQ(panels_per_task(128, 17408, 2), 11U);  // 192 KiB
  EXPECT_EQ(panels_per_task(128, 17408, 8), 4U);   // four tasks a thread
  EXPECT_EQ(panels_per_task(3, 17408, 8), 1U);
  EXPECT_EQ(panels_per_task(3, 1000000, 1), 1U);
}

}  // namespace
}  // namespace lode::ops
