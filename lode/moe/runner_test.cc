#include "lode/moe/runner.h"

#include <gtest/gtest.h>

#include <string>

#include "lode/moe/test_formula.h"

namespace lode::moe {
namespace {

using families::Activation;
using families::Score;
using ops::Mode;
using ops::TestRows;
using test::Input;
using test::kTokens;
using test::Layer;
using test::LayerShape;
using test::Scratch;

void expect_formula(const LayerShape& shape) {
  const Layer layer(shape);
  const Scratch scratch(shape, Mode::kExact, 16);
  const std::vector<float> got = run(layer, Mode::kExact, {2, 0, kTokens, {}}, scratch);
  double loosest = 0.0;
  for (std::size_t token = 0; token < kTokens; token += 7) {
    const std::vector<test::Bounded> want = by_formula(layer, *scratch, token);
    for (std::size_t i = 0; i < shape.hidden; ++i) {
      ASSERT_NEAR(got[token * shape.hidden + i], want[i].value, want[i].error) << token << " " << i;
      loosest = std::max(loosest, want[i].error);
    }
  }
  // A wrong bias, expert or weight moves results by more than 0.01.
  EXPECT_LT(loosest, 0.01);
}

/// Everything that a layer may have at once, in widths that no block divides.
LayerShape full_shape(const formats::Encoding& encoding) {
  LayerShape shape;
  shape.encoding = encoding;
  shape.hidden = 83;
  shape.inner = 45;
  shape.router.num_zero_experts = 2;
  shape.shared = 51;
  shape.shared_gate = true;
  return shape;
}

/// The encodings that experts are computed in; files with others are brought to one of them.
std::vector<formats::EncodingInfo> computed_encodings() {
  std::vector<formats::EncodingInfo> out;
  for (const formats::EncodingInfo& info : formats::encoding_table()) {
    if (kernels::panel_shape(info.encoding)) out.push_back(info);
  }
  return out;
}

class MoeRunner : public testing::TestWithParam<formats::EncodingInfo> {};

TEST_P(MoeRunner, IsTheFormula) {
  LayerShape shape;
  shape.encoding = GetParam().encoding;
  expect_formula(shape);
}

TEST_P(MoeRunner, IsTheFormulaWithBiasesAndOddWidths) {
  LayerShape shape = test::plain_shape(GetParam().encoding, true);
  shape.hidden = 51;
  shape.inner = 37;
  expect_formula(shape);
}

TEST_P(MoeRunner, IsTheFormulaWithZeroAndSharedExperts) {
  expect_formula(full_shape(GetParam().encoding));
}

TEST_P(MoeRunner, IsTheFormulaWithWeightsOnTheInput) {
  LayerShape shape;
  shape.encoding = GetParam().encoding;
  shape.bias = true;
  shape.router = {Score::kSigmoid, 6, 2};
  shape.router.weight_on_input = true;
  shape.shared = 40;
  expect_formula(shape);
}

TEST_P(MoeRunner, IsTheFormulaWithoutAGate) {
  LayerShape shape;
  shape.encoding = GetParam().encoding;
  shape.bias = true;
  shape.activation.kind = Activation::kPlainRelu2;
  shape.shared = 40;
  expect_formula(shape);
}

TEST_P(MoeRunner, GivesTheSameBitsForAnyThreadsChunksAndCompany) {
  for (const bool on_input : {false, true}) {
    LayerShape shape = full_shape(GetParam().encoding);
    shape.router.weight_on_input = on_input;
    const Layer layer(shape);
    for (const Mode mode : {Mode::kExact, Mode::kFast}) {
      const Scratch scratch(shape, mode);
      const std::vector<float> want = run(layer, mode, {}, scratch);
      for (const std::size_t chunk : {0U, 1U, 3U, 64U, 1000U}) {
        const Scratch chunked(shape, mode, chunk);
        EXPECT_EQ(run(layer, mode, {1 + chunk % 3, 0, kTokens, {}}, chunked), want) << chunk;
      }
      for (const std::size_t first : {0U, 5U, 69U}) {
        const std::size_t count = std::min<std::size_t>(3, kTokens - first);
        const auto at = want.begin() + static_cast<std::ptrdiff_t>(first * shape.hidden);
        const auto end = at + static_cast<std::ptrdiff_t>(count * shape.hidden);
        EXPECT_EQ(run(layer, mode, {2, first, count, {}}, scratch), std::vector<float>(at, end));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, MoeRunner, testing::ValuesIn(computed_encodings()),
                         [](const auto& tested) {
                           std::string name(tested.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(MoeActivations, AreTheFormulaEach) {
  for (const Activation kind : {Activation::kGelu, Activation::kGeluTanh, Activation::kSiluClamped,
                                Activation::kSwigluStep, Activation::kSitu, Activation::kPlainSilu,
                                Activation::kPlainGelu, Activation::kPlainGeluTanh}) {
    SCOPED_TRACE(static_cast<int>(kind));
    LayerShape shape;
    shape.activation = {kind, 1.25F, 0.75F, 1.5F, 2.0F};
    shape.shared = 33;
    expect_formula(shape);
  }
}

TEST(MoeRouting, IsTheFormulaWhereEveryTokenHasAllExpertsOrAllHaveOne) {
  LayerShape shape;
  shape.router.top_k = 6;
  expect_formula(shape);
  shape.router.num_experts = 1;
  shape.router.top_k = 1;
  expect_formula(shape);
}

/// What rows that stand for no token must not change: the bits of the others, and their own sums.
TEST(MoePadding, LeavesItsRowsAloneAndTheOthersTheirBits) {
  for (const bool on_input : {false, true}) {
    LayerShape shape = full_shape(formats::kMxfp4);
    shape.router.weight_on_input = on_input;
    const Layer layer(shape);
    const Scratch scratch(shape, Mode::kFast, 7);
    const std::vector<float> whole = run(layer, Mode::kFast, {}, scratch);
    Input input{2, 0, kTokens, std::vector<std::int32_t>(kTokens, 11)};
    for (std::size_t row = 0; row < kTokens; row += 1 + row % 4) input.tokens[row] = -1;
    const std::vector<float> got = run(layer, Mode::kFast, input, scratch);
    for (std::size_t row = 0; row < kTokens; ++row) {
      const auto at = static_cast<std::ptrdiff_t>(row * shape.hidden);
      const std::vector<float> mine(got.begin() + at,
                                    got.begin() + at + static_cast<std::ptrdiff_t>(shape.hidden));
      if (input.tokens[row] >= 0) {
        EXPECT_TRUE(std::equal(mine.begin(), mine.end(), whole.begin() + at)) << row;
        continue;
      }
      EXPECT_EQ(mine, test::input_row(shape.hidden, row, test::kStartSeed)) << row;
      EXPECT_EQ(scratch->ids[row * 2], kNoExpert);
      EXPECT_EQ(scratch->weights[row * 2 + 1], 0.0F);
      EXPECT_EQ(scratch->zero_weights[row], 0.0F);
      EXPECT_EQ(scratch->unsure[row], 0);
    }
  }
}

TEST(MoePadding, MayBeAllThereIs) {
  const LayerShape shape = full_shape(formats::kPlainBf16);
  const Layer layer(shape);
  const Scratch scratch(shape, Mode::kExact);
  const std::vector<std::int32_t> tokens(3, -1);
  const std::vector<float> got = run(layer, Mode::kExact, {2, 4, 3, tokens}, scratch);
  for (std::size_t row = 0; row < 3; ++row) {
    const std::vector<float> start = test::input_row(shape.hidden, 4 + row, test::kStartSeed);
    EXPECT_TRUE(std::equal(start.begin(), start.end(),
                           got.begin() + static_cast<std::ptrdiff_t>(row * shape.hidden)));
  }
  EXPECT_EQ(scratch->order.total(), 0U);
}

TEST(MoeRows, OfAPartOfAPassAreThoseOfTheWhole) {
  const LayerShape shape = full_shape(formats::kNvfp4);
  const Layer layer(shape);
  const Scratch scratch(shape, Mode::kFast, 2);
  const std::vector<float> whole = run(layer, Mode::kFast, {}, scratch);
  const ops::TestCompute compute(2, Mode::kFast);
  const TestRows x(kTokens, shape.hidden, Mode::kFast, test::kInputSeed);
  const TestRows sums(kTokens, shape.hidden, Mode::kExact, test::kStartSeed);
  const Scratch fresh(shape, Mode::kFast, 2);
  ops::pack_rows(*compute, *x, kTokens, input_forms(*compute, *layer));
  run_moe(*compute, *layer, {*x, 7, {}, 30}, *fresh, *sums);
  for (std::size_t row = 0; row < kTokens; ++row) {
    const auto at = whole.begin() + static_cast<std::ptrdiff_t>(row * shape.hidden);
    const bool same = std::equal(sums->row(row).begin(), sums->row(row).end(), at);
    EXPECT_EQ(same, row >= 30 && row < 37) << row;
  }
}

TEST(MoeRouting, TakesWhatTheLayerHasLearned) {
  LayerShape shape;
  Layer layer(shape);
  const std::vector<float> in_logits = {0.0F, 1.0F, 0.0F, -1.0F, 0.5F, 0.0F};
  const std::vector<float> on_choice = {0.0F, 0.0F, 0.25F, 0.5F, 0.0F, -0.5F};
  const std::vector<float> on_weight = {1.0F, 2.0F, 0.5F, 4.0F, 0.25F, 3.0F};
  const Scratch plain(shape, Mode::kExact), learned(shape, Mode::kExact);
  run(layer, Mode::kExact, {}, plain);
  layer.layer().router_bias = in_logits;
  layer.layer().selection_bias = on_choice;
  layer.layer().expert_scale = on_weight;
  run(layer, Mode::kExact, {}, learned);
  std::vector<float> logits(6), weights(2), scratch(route_scratch_floats(shape.router));
  std::vector<std::int32_t> ids(2);
  for (std::size_t row = 0; row < kTokens; ++row) {
    for (std::size_t e = 0; e < 6; ++e) logits[e] = plain->logits[row * 6 + e] + in_logits[e];
    route_row(shape.router, {logits, on_choice, on_weight, {}}, scratch, {ids, weights});
    for (std::size_t column = 0; column < 2; ++column) {
      EXPECT_EQ(learned->ids[row * 2 + column], ids[column]);
      EXPECT_EQ(learned->weights[row * 2 + column], weights[column]);
    }
  }
}

TEST(MoeTable, GivesTokensTheirExpertsAndAnUnknownTokenNone) {
  LayerShape shape;
  Layer layer(shape);
  const std::vector<std::int32_t> table = {4, 1, 0, 5, 2, 3};
  layer.layer().expert_table = table;
  const Scratch scratch(shape, Mode::kExact);
  const Input input{1, 0, 5, {2, 0, 3, -1, 1}};
  const std::vector<float> got = run(layer, Mode::kExact, input, scratch);
  const std::vector<std::int32_t> ids(scratch->ids.begin(), scratch->ids.begin() + 10);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, 3, 4, 1, -1, -1, -1, -1, 0, 5}));
  EXPECT_EQ(std::vector<std::uint8_t>(scratch->unsure.begin(), scratch->unsure.begin() + 5),
            (std::vector<std::uint8_t>{0, 0, 1, 0, 0}));
  for (const std::size_t token : {0U, 1U, 4U}) {
    const std::vector<test::Bounded> want = by_formula(layer, *scratch, token);
    for (std::size_t i = 0; i < shape.hidden; ++i) {
      EXPECT_NEAR(got[token * shape.hidden + i], want[i].value, want[i].error);
    }
  }
}

// The forms of both are in the input, and the shared expert comes after the routed ones.
TEST(MoeShared, IsADenseMlpOfAnotherFormatAddedOnce) {
  LayerShape shape;
  shape.encoding = formats::kMxfp4;
  shape.shared = 48;
  for (const formats::Encoding& encoding : {formats::kInt8Row128, formats::kPlainBf16}) {
    shape.shared_encoding = encoding;
    Layer layer(shape);
    const Scratch scratch(shape, Mode::kFast);
    const std::vector<float> got = run(layer, Mode::kFast, {}, scratch);
    const ops::TestCompute compute(2, Mode::kFast);
    const TestRows x(kTokens, shape.hidden, Mode::kFast, test::kInputSeed);
    const TestRows sums(kTokens, shape.hidden, Mode::kExact, test::kStartSeed);
    ops::pack_rows(*compute, *x, kTokens, input_forms(*compute, *layer));
    const DenseLayer dense{layer.layer().shared.mlp, layer.layer().shared.activation};
    layer.layer().shared = {};
    run_moe(*compute, *layer, *x, kTokens, *scratch, *sums);
    TestRows narrow(kTokens, shape.shared, Mode::kFast, 9);
    MoeScratch with_inner = *scratch;
    with_inner.dense_inner = *narrow;
    run_dense(*compute, dense, *x, kTokens, with_inner, *sums);
    EXPECT_EQ(sums.numbers(), got);
  }
}

TEST(MoeScratchBytes, DoNotGrowWithRowsBeyondAChunkButForTheirRoutes) {
  LayerShape shape;
  shape.inner = 4096;
  const Scratch whole(shape, Mode::kExact), chunked(shape, Mode::kExact, 10);
  const std::size_t row_bytes = shape.router.top_k * shape.inner * sizeof(float);
  EXPECT_EQ(whole.bytes() - chunked.bytes(), (kTokens - 10) * row_bytes);
}

TEST(DenseMlp, EqualsARoutedExpertOfWeightOne) {
  LayerShape shape;
  shape.router.num_experts = 1;
  shape.router.top_k = 1;
  const Layer layer(shape);
  const Scratch scratch(shape, Mode::kExact);
  const std::vector<float> want = run(layer, Mode::kExact, {}, scratch);
  const DenseLayer dense{gated_mlp(layout::expert_views((*layer).record, (*layer).experts)),
                         shape.activation};
  const ops::TestCompute compute(2, Mode::kExact);
  const TestRows x(kTokens, shape.hidden, Mode::kExact, test::kInputSeed);
  const TestRows sums(kTokens, shape.hidden, Mode::kExact, test::kStartSeed);
  run_dense(*compute, dense, *x, kTokens, *scratch, *sums);
  EXPECT_EQ(sums.numbers(), want);
}

}  // namespace
}  // namespace lode::moe
