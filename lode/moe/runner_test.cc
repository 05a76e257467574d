#include "lode/moe/runner.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lode/ops/test_weights.h"

namespace lode::moe {
namespace {

using ops::Mode;
using ops::TestRows;
using ops::TestWeights;

constexpr std::size_t kHidden = 96, kInner = 72, kExperts = 6, kTopK = 2, kTokens = 70;

/// A layer with random experts, and its weights as numbers.
class Layer {
 public:
  Layer(const formats::Encoding& encoding, bool bias)
      : router_(formats::kPlainF32, kExperts, kHidden, 5) {
    layer_.record = *layout::make_expert_record(kHidden, kInner, encoding, encoding, bias);
    bytes_ = kernels::Lines(kExperts * layer_.record.record_bytes);
    for (std::uint32_t expert = 0; expert < kExperts; ++expert) add_expert(encoding, expert);
    layer_.experts = {bytes_.data(), kExperts * layer_.record.record_bytes};
    layer_.router = {families::Score::kSoftmax, kExperts, kTopK, false, true};
    router_values_ = router_.values();
    layer_.router_weight = router_values_;
    layer_.activation.kind = bias ? families::Activation::kSwigluOai : families::Activation::kSilu;
  }
  const MoeLayer& operator*() const { return layer_; }

  struct Numbers {
    std::vector<float> gate, up, down, gate_bias, up_bias, down_bias;
  };
  const Numbers& expert(std::size_t index) const { return numbers_[index]; }

 private:
  void add_expert(const formats::Encoding& encoding, std::uint32_t index) {
    const TestWeights gate(encoding, kInner, kHidden, 10 * index + 1);
    TestWeights up(encoding, kInner, kHidden, 10 * index + 2);
    const TestWeights down(encoding, kHidden, kInner, 10 * index + 3);
    if (encoding.tensor_scale != formats::TensorScale::kNone) up.matrix_scale() = 0.5F;
    const std::span<std::byte> record(bytes_.data() + index * layer_.record.record_bytes,
                                      layer_.record.record_bytes);
    const auto pair = *layout::PanelLayout::make(encoding, kInner, kHidden, 2);
    const auto single = *layout::PanelLayout::make(encoding, kHidden, kInner);
    gate.pack(pair, 0, record.first(layer_.record.gate_up_bytes));
    up.pack(pair, 1, record.first(layer_.record.gate_up_bytes));
    down.pack(single, 0, record.subspan(layer_.record.down_offset_bytes, layer_.record.down_bytes));
    numbers_.push_back({gate.values(), up.values(), down.values(), {}, {}, {}});
    if (!layer_.record.bias) return;
    Numbers& numbers = numbers_.back();
    numbers.gate_bias = TestWeights(formats::kPlainF32, 1, kInner, 100 + index, 0.5F).values();
    numbers.up_bias = TestWeights(formats::kPlainF32, 1, kInner, 200 + index, 0.5F).values();
    numbers.down_bias = TestWeights(formats::kPlainF32, 1, kHidden, 300 + index, 0.5F).values();
    const auto put = [&](std::uint64_t offset, const std::vector<float>& values) {
      std::memcpy(record.data() + offset, values.data(), values.size() * sizeof(float));
    };
    put(layer_.record.gate_bias_offset_bytes, numbers.gate_bias);
    put(layer_.record.up_bias_offset_bytes, numbers.up_bias);
    put(layer_.record.down_bias_offset_bytes, numbers.down_bias);
  }

  MoeLayer layer_;
  TestWeights router_;
  std::vector<float> router_values_;
  kernels::Lines bytes_{0};
  std::vector<Numbers> numbers_;
};

/// Scratch with its memory.
class Scratch {
 public:
  explicit Scratch(Mode mode) {
    memory::Carver size;
    carve(size, mode);
    bytes_ = kernels::Lines(size.bytes());
    memory::Carver carver(std::span(bytes_.data(), size.bytes()));
    carve(carver, mode);
  }
  const MoeScratch& operator*() const { return scratch_; }
  const MoeScratch* operator->() const { return &scratch_; }

 private:
  void carve(memory::Carver& carver, Mode mode) {
    const families::RouterSpec router{families::Score::kSoftmax, kExperts, kTopK};
    scratch_ = carve_moe(carver, router, {kInner, kInner}, kTokens, mode);
  }
  kernels::Lines bytes_{0};
  MoeScratch scratch_;
};

struct Input {
  std::size_t threads = 1, first = 0, count = kTokens;
};

std::vector<float> run(const MoeLayer& layer, Mode mode, const Input& input,
                       const Scratch& scratch) {
  const ops::TestCompute compute(input.threads, mode);
  const TestRows all(kTokens, kHidden, Mode::kExact, 1), start(kTokens, kHidden, Mode::kExact, 2);
  const TestRows x(input.count, kHidden, mode, 3), sums(input.count, kHidden, Mode::kExact, 3);
  for (std::size_t row = 0; row < input.count; ++row) {
    std::copy_n(all->row(input.first + row).begin(), kHidden, x->row(row).begin());
    std::copy_n(start->row(input.first + row).begin(), kHidden, sums->row(row).begin());
  }
  ops::pack_rows(*compute, *x, input.count, input_forms(*compute, layer.record));
  run_moe(*compute, layer, *x, input.count, *scratch, *sums);
  return sums.numbers();
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double activated(const GatedActivation& activation, double gate, double up) {
  if (activation.kind == families::Activation::kSilu) return gate * sigmoid(gate) * up;
  const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
  return (u + 1.0) * g * sigmoid(1.702 * g);
}

double product(const std::vector<float>& weights, std::size_t row, const std::vector<double>& x) {
  double sum = 0.0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += double{weights[row * x.size() + k]} * x[k];
  return sum;
}

/// One token by the formulas in double; routing as the layer's own scratch says.
std::vector<double> by_formula(const Layer& layer, const MoeScratch& routing, std::size_t token) {
  const TestRows all(kTokens, kHidden, Mode::kExact, 1), start(kTokens, kHidden, Mode::kExact, 2);
  const std::vector<double> x(all->row(token).begin(), all->row(token).end());
  std::vector<double> sums(start->row(token).begin(), start->row(token).end());
  for (std::size_t column = 0; column < kTopK; ++column) {
    const auto& numbers =
        layer.expert(static_cast<std::size_t>(routing.ids[token * kTopK + column]));
    const double weight = routing.weights[token * kTopK + column];
    const auto bias = [](const std::vector<float>& list, std::size_t i) {
      return list.empty() ? 0.0 : double{list[i]};
    };
    std::vector<double> inner(kInner);
    for (std::size_t i = 0; i < kInner; ++i) {
      inner[i] =
          activated((*layer).activation, product(numbers.gate, i, x) + bias(numbers.gate_bias, i),
                    product(numbers.up, i, x) + bias(numbers.up_bias, i));
    }
    for (std::size_t i = 0; i < kHidden; ++i) {
      sums[i] += weight * (product(numbers.down, i, inner) + bias(numbers.down_bias, i));
    }
  }
  return sums;
}

// Gate and up are sums of 96 products below |w| |x| = 1 * 10; with (96 + 2) u each, an activation
// whose slope is below 8, then 72 products: below 5e-4 of a result near 10. A wrong bias, expert or
// weight moves results by more than 0.01.
constexpr double kExactBound = 5e-4;

class MoeRunner : public testing::TestWithParam<std::pair<std::string_view, bool>> {};

TEST_P(MoeRunner, IsTheFormula) {
  const Layer layer(*formats::encoding_by_name(GetParam().first), GetParam().second);
  const Scratch scratch(Mode::kExact);
  const std::vector<float> got = run(*layer, Mode::kExact, {}, scratch);
  for (std::size_t token = 0; token < kTokens; ++token) {
    const std::vector<double> want = by_formula(layer, *scratch, token);
    for (std::size_t i = 0; i < kHidden; ++i) {
      ASSERT_NEAR(got[token * kHidden + i], want[i], kExactBound) << token << " " << i;
    }
  }
}

TEST_P(MoeRunner, GivesTheSameBitsForAnyThreadsAndCompany) {
  const Layer layer(*formats::encoding_by_name(GetParam().first), GetParam().second);
  for (const Mode mode : {Mode::kExact, Mode::kFast}) {
    const Scratch scratch(mode);
    const std::vector<float> want = run(*layer, mode, {}, scratch);
    EXPECT_EQ(run(*layer, mode, {2, 0, kTokens}, scratch), want);
    EXPECT_EQ(run(*layer, mode, {3, 0, kTokens}, scratch), want);
    for (const std::size_t first : {0U, 5U, 69U}) {
      const std::size_t count = std::min<std::size_t>(3, kTokens - first);
      const auto at = want.begin() + static_cast<std::ptrdiff_t>(first * kHidden);
      const auto end = at + static_cast<std::ptrdiff_t>(count * kHidden);
      EXPECT_EQ(run(*layer, mode, {2, first, count}, scratch), std::vector<float>(at, end))
          << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, MoeRunner,
                         testing::Values(std::pair("bf16", false), std::pair("bf16", true),
                                         std::pair("mxfp4", true), std::pair("nvfp4", false),
                                         std::pair("fp8-block", false)),
                         [](const auto& tested) {
                           std::string name(tested.param.first);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (tested.param.second ? "_bias" : "");
                         });

TEST(DenseMlp, EqualsARoutedExpertOfWeightOne) {
  Layer layer(formats::kPlainBf16, false);
  MoeLayer one = *layer;
  one.router.num_experts = 1;
  one.router.top_k = 1;
  const Scratch scratch(Mode::kExact);
  const std::vector<float> want = run(one, Mode::kExact, {}, scratch);
  const DenseLayer dense{
      gated_mlp(layout::expert_views(one.record, one.experts.first(one.record.record_bytes))),
      one.activation};
  const ops::TestCompute compute(2, Mode::kExact);
  const TestRows x(kTokens, kHidden, Mode::kExact, 1), sums(kTokens, kHidden, Mode::kExact, 2);
  run_dense(*compute, dense, *x, kTokens, *scratch, *sums);
  EXPECT_EQ(sums.numbers(), want);
}

TEST(MoeRunnerRows, PassesOverPairsWithoutAnExpert) {
  const Layer layer(formats::kPlainBf16, false);
  const Scratch scratch(Mode::kExact);
  for (std::int32_t& id : scratch->ids) id = kNoExpert;
  order_by_expert(scratch->ids, scratch->order);
  EXPECT_EQ(scratch->order.total(), 0U);
  const ops::TestCompute compute(1, Mode::kExact);
  const TestRows sums(kTokens, kHidden, Mode::kExact, 2);
  const std::vector<float> before = sums.numbers();
  run_gate_up(*compute, {}, *sums, scratch->inner);
  run_down(*compute, {}, scratch->inner, *sums);
  EXPECT_EQ(sums.numbers(), before);
}

}  // namespace
}  // namespace lode::moe
