#include "lode/targets/cutlass_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "lode/formats/dequantise.h"
#include "lode/formats/e4m3.h"
#include "lode/targets/prepare_layer.h"
#include "lode/targets/target.h"

namespace lode::targets {
namespace {

using formats::Format;
using Bytes = std::vector<std::byte>;

/// A layer of random bytes, whose scales are ordinary numbers.
struct Layer {
  ExpertsShape shape;
  LayerTensors tensors;
  LayerScalars scalars;
};

Layer random_layer(const ExpertsShape& shape, std::mt19937& random) {
  Layer layer{shape, {}, {}};
  std::uniform_int_distribution<unsigned> any(0, 255);
  std::uniform_int_distribution<unsigned> ordinary(0x30, 0x60);  // as F32 above 1e-10
  for (std::size_t part = 0; part < kNumLayerParts; ++part) {
    const auto which = static_cast<LayerPart>(part);
    const bool bias = which == LayerPart::kGateUpBias || which == LayerPart::kDownBias;
    if (bias && !shape.bias) continue;
    Bytes& bytes = layer.tensors.parts[part];
    bytes.resize(shape.num_experts * part_bytes(shape, which));
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(part < 2 ? any(random) : ordinary(random));
  }
  for (std::uint64_t expert = 0; expert < shape.num_experts; ++expert) {
    const float scale = 0.01F * static_cast<float>(1 + any(random) % 8);
    layer.scalars.gate_scale.push_back(scale);
    if (shape.gated) layer.scalars.up_scale.push_back(scale);
    layer.scalars.down_scale.push_back(scale * 3.0F);
    layer.scalars.gate_input_scale.push_back(scale * 0.5F);
    if (shape.gated) layer.scalars.up_input_scale.push_back(scale * 0.75F);
    layer.scalars.down_input_scale.push_back(scale * 0.25F);
  }
  layer.scalars.one_scale = true;
  layer.scalars.largest_gate_up_input_scale = 0.25F;
  layer.scalars.largest_down_input_scale = 0.5F;
  return layer;
}

/// The bytes of one expert in every tensor.
PreparedExpert expert_of(const Preparer& preparer, const std::vector<NamedTensor>& made,
                         std::uint64_t expert) {
  PreparedExpert parts;
  for (std::size_t idx = 0; idx < made.size(); ++idx) {
    const std::uint64_t size = preparer.tensors()[idx].expert_bytes;
    parts.push_back(std::span<const std::byte>(made[idx].bytes).subspan(expert * size, size));
  }
  return parts;
}

std::vector<NamedTensor> made_by(const Preparer& preparer, const Layer& layer,
                                 const LayerRun& run = {}) {
  auto made = prepare_layer(preparer, layer.shape, layer.tensors, layer.scalars, run);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? *std::move(made) : std::vector<NamedTensor>();
}

/// Rows of one matrix as the checkpoint has them.
class SourceRows {
 public:
  SourceRows(const Layer& layer, Matrix matrix, bool scales, std::uint64_t expert) {
    const bool down = matrix == Matrix::kDown;
    const LayerPart part = scales ? (down ? LayerPart::kDownScales : LayerPart::kGateUpScales)
                                  : (down ? LayerPart::kDown : LayerPart::kGateUp);
    const ExpertsShape& shape = layer.shape;
    const std::uint64_t size = part_bytes(shape, part);
    const std::uint64_t k = down ? shape.intermediate : shape.hidden;
    row_bytes_ = scales ? formats::scale_columns(shape.encoding, k) *
                              formats::info(shape.scale_format).bits / 8
                        : formats::row_bytes(shape.encoding, k);
    rows_ = layout::rows_of(std::span(layer.tensors[part]).subspan(expert * size, size),
                            down ? 1 : shape.num_halves(), row_bytes_,
                            !down && shape.rows_in_turn ? layout::GateUpOrder::kGateUpInTurn
                                                        : layout::GateUpOrder::kGateThenUp);
    half_ = matrix == Matrix::kUp ? 1 : 0;
  }
  std::uint64_t count() const { return rows_.half_rows; }
  std::uint64_t row_bytes() const { return row_bytes_; }
  Bytes row(std::uint64_t row) const {
    const auto bytes = rows_.row({half_, row});
    return {bytes.begin(), bytes.end()};
  }

 private:
  layout::MatrixRows rows_;
  std::uint64_t row_bytes_ = 0;
  std::uint32_t half_ = 0;
};

void expect_restored(const Preparer& preparer, const Layer& layer,
                     const std::vector<NamedTensor>& made, bool scales_too) {
  std::vector<Matrix> matrices{Matrix::kGate, Matrix::kDown};
  if (layer.shape.gated) matrices.push_back(Matrix::kUp);
  for (std::uint64_t expert = 0; expert < layer.shape.num_experts; ++expert) {
    const PreparedExpert prepared = expert_of(preparer, made, expert);
    for (const Matrix matrix : matrices) {
      const SourceRows codes(layer, matrix, false, expert);
      Bytes row(codes.row_bytes());
      for (std::uint64_t idx = 0; idx < codes.count(); ++idx) {
        preparer.restore_codes(matrix, idx, prepared, row);
        ASSERT_EQ(row, codes.row(idx)) << "row " << idx;
      }
      if (!scales_too) continue;
      const SourceRows scales(layer, matrix, true, expert);
      row.resize(scales.row_bytes());
      for (std::uint64_t idx = 0; idx < scales.count(); ++idx) {
        preparer.restore_scales(matrix, idx, prepared, row);
        ASSERT_EQ(row, scales.row(idx)) << "scales of row " << idx;
      }
    }
  }
}

struct Case {
  Target target;
  std::string_view encoding;
  std::uint64_t hidden;
  std::uint64_t intermediate;
};

class Layers : public ::testing::TestWithParam<std::tuple<Case, bool>> {
 protected:
  Layer layer() const {
    const auto& [one, gated] = GetParam();
    ExpertsShape shape;
    shape.num_experts = 2;
    shape.hidden = one.hidden;
    shape.intermediate = one.intermediate;
    shape.gated = gated;
    shape.encoding = *formats::encoding_by_name(one.encoding);
    shape.scale_format = shape.encoding.scale;
    shape.rows_in_turn = gated && one.encoding == "mxfp4";
    shape.bias = one.encoding == "mxfp4";
    shape.input_scales = one.encoding == "nvfp4" || one.encoding == "fp8-tensor";
    return random_layer(shape, random_);
  }
  Target target() const { return std::get<0>(GetParam()).target; }
  mutable std::mt19937 random_{31};
};

TEST_P(Layers, AreTheSameInEveryWayAndForAnyThreads) {
  const Layer layer = this->layer();
  const auto preparer = make_preparer(target(), layer.shape);
  ASSERT_TRUE(preparer) << to_string(preparer.error());
  const auto whole = made_by(**preparer, layer);
  for (const LayerRun& run : {LayerRun{Way::kInPlace, 1, 1}, LayerRun{Way::kInPlace, 2, 1},
                              LayerRun{Way::kStreamed, 1, 2}, LayerRun{Way::kStreamed, 2, 3}}) {
    const auto made = made_by(**preparer, layer, run);
    ASSERT_EQ(made.size(), whole.size());
    for (std::size_t idx = 0; idx < made.size(); ++idx) {
      EXPECT_EQ(made[idx].bytes, whole[idx].bytes) << made[idx].name << ' ' << name(run.way);
    }
  }
}

TEST_P(Layers, AreReadBackAsTheCheckpointHadThem) {
  const Layer layer = this->layer();
  const auto preparer = make_preparer(target(), layer.shape);
  ASSERT_TRUE(preparer) << to_string(preparer.error());
  const auto made = made_by(**preparer, layer);
  const bool folded =
      target() == Target::kFlashinferB12x && layer.shape.encoding == formats::kNvfp4;
  const bool own_scales = layer.shape.encoding.block_rows != formats::kWhole;
  expect_restored(**preparer, layer, made, layer.shape.encoding.has_scale && own_scales && !folded);
  const bool scale = layer.shape.encoding.tensor_scale != formats::TensorScale::kNone && !folded;
  for (std::uint64_t expert = 0; expert < 2; ++expert) {
    const PreparedExpert prepared = expert_of(**preparer, made, expert);
    EXPECT_EQ((*preparer)->restore_scale(Matrix::kGate, prepared),
              scale ? layer.scalars.gate_scale[expert] : 1.0F);
    EXPECT_EQ((*preparer)->restore_scale(Matrix::kDown, prepared),
              scale ? layer.scalars.down_scale[expert] : 1.0F);
  }
}

TEST_P(Layers, CountThePaddingAndFillItWithOneByte) {
  const Layer layer = this->layer();
  const auto preparer = make_preparer(target(), layer.shape);
  ASSERT_TRUE(preparer) << to_string(preparer.error());
  Layer other = layer;  // every byte of the checkpoint is another one
  for (Bytes& part : other.tensors.parts) {
    for (std::byte& byte : part) byte ^= std::byte{0xFF};
  }
  const auto made = made_by(**preparer, layer);
  const auto changed = made_by(**preparer, other);
  for (std::size_t idx = 0; idx < made.size(); ++idx) {
    const EngineTensor& tensor = (*preparer)->tensors()[idx];
    EXPECT_EQ(tensor.expert_bytes % tensor.unit_bytes, 0U) << tensor.name;
    if (tensor.shape.rank() == 1) continue;
    if (tensor.dtype == Format::kF32 || tensor.name.ends_with("bias")) continue;
    std::uint64_t same = 0;
    for (std::size_t at = 0; at < made[idx].bytes.size(); ++at) {
      same += made[idx].bytes[at] == changed[idx].bytes[at] ? 1 : 0;
    }
    if (!tensor.name.ends_with("scale") || target() != Target::kFlashinferB12x) {
      EXPECT_EQ(same, 2 * tensor.padding_bytes) << tensor.name;
    }
  }
}

constexpr Case kCases[]{
    {Target::kVllmCutlass, "nvfp4", 64, 48},
    {Target::kVllmCutlass, "mxfp4", 64, 96},
    {Target::kVllmCutlass, "fp8-tensor", 48, 24},
    {Target::kVllmCutlass, "fp8-channel", 48, 24},
    {Target::kVllmCutlass, "fp8-block", 192, 128},
    {Target::kFlashinferCutlass, "nvfp4", 96, 80},
    {Target::kFlashinferCutlass, "mxfp4", 96, 64},
    {Target::kFlashinferCutlass, "fp8-tensor", 48, 24},
    {Target::kFlashinferCutlass, "fp8-block", 192, 128},
    {Target::kFlashinferCutlass, "bf16", 40, 24},
    {Target::kFlashinferCutlass, "f16", 40, 24},
    {Target::kFlashinferB12x, "nvfp4", 96, 80},
    {Target::kFlashinferB12x, "mxfp4", 96, 96},
    {Target::kFlashinferTrtllm, "nvfp4", 192, 48},
    {Target::kFlashinferTrtllm, "mxfp4", 192, 96},
    {Target::kFlashinferTrtllm, "mxfp8", 192, 96},
    {Target::kFlashinferTrtllm, "fp8-tensor", 64, 24},
    {Target::kFlashinferTrtllm, "fp8-block", 256, 128},
    {Target::kFlashinferTrtllm, "bf16", 64, 96},
};
std::string test_name(const ::testing::TestParamInfo<std::tuple<Case, bool>>& of) {
  const auto& [one, gated] = of.param;
  std::string text = std::string(name(one.target)) + "_" + std::string(one.encoding) +
                     (gated ? "_gated" : "_plain");
  std::ranges::replace(text, '-', '_');
  return text;
}
INSTANTIATE_TEST_SUITE_P(All, Layers,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Bool()),
                         test_name);

// The rules of numbers, and what is refused.

ExpertsShape nvfp4_shape() {
  ExpertsShape shape;
  shape.num_experts = 1;
  shape.hidden = 64;
  shape.intermediate = 64;
  shape.encoding = formats::kNvfp4;
  shape.scale_format = Format::kE4m3;
  return shape;
}

TEST(LayerNumbers, BringGateAndUpOfNvfp4ToTheLargerScale) {
  std::mt19937 random(41);
  Layer layer = random_layer(nvfp4_shape(), random);
  layer.scalars.one_scale = false;
  layer.scalars.gate_scale = {0.02F};
  layer.scalars.up_scale = {0.08F};
  const auto preparer = make_preparer(Target::kFlashinferCutlass, layer.shape);
  ASSERT_TRUE(preparer);
  const auto made = made_by(**preparer, layer);
  const PreparedExpert prepared = expert_of(**preparer, made, 0);
  EXPECT_EQ((*preparer)->restore_scale(Matrix::kGate, prepared), 0.08F);
  const SourceRows gate(layer, Matrix::kGate, true, 0);
  const SourceRows up(layer, Matrix::kUp, true, 0);
  Bytes row(4);
  for (std::uint64_t idx = 0; idx < 64; ++idx) {
    (*preparer)->restore_scales(Matrix::kUp, idx, prepared, row);
    EXPECT_EQ(row, up.row(idx));
    (*preparer)->restore_scales(Matrix::kGate, idx, prepared, row);
    for (std::size_t at = 0; at < row.size(); ++at) {
      const auto stored = std::to_integer<std::uint8_t>(gate.row(idx)[at]);
      EXPECT_EQ(std::to_integer<std::uint8_t>(row[at]),
                formats::encode_e4m3(formats::decode_e4m3(stored) * 0.25F));
    }
  }
}

// Each half takes up its own scale: exact, where the engines use gate's for both.
TEST(LayerNumbers, FoldEachHalfsOwnScaleForB12x) {
  std::mt19937 random(42);
  Layer layer = random_layer(nvfp4_shape(), random);
  layer.scalars.gate_scale = {0.5F};
  layer.scalars.up_scale = {2.0F};
  layer.scalars.down_scale = {4.0F};
  const auto preparer = make_preparer(Target::kFlashinferB12x, layer.shape);
  ASSERT_TRUE(preparer);
  const auto made = made_by(**preparer, layer);
  const PreparedExpert prepared = expert_of(**preparer, made, 0);
  for (const auto& [matrix, factor] : {std::pair{Matrix::kGate, 0.5F}, std::pair{Matrix::kUp, 2.0F},
                                       std::pair{Matrix::kDown, 4.0F}}) {
    const SourceRows source(layer, matrix, true, 0);
    Bytes row(4);
    (*preparer)->restore_scales(matrix, 7, prepared, row);
    for (std::size_t at = 0; at < row.size(); ++at) {
      const auto stored = std::to_integer<std::uint8_t>(source.row(7)[at]);
      EXPECT_EQ(std::to_integer<std::uint8_t>(row[at]),
                formats::encode_e4m3(formats::decode_e4m3(stored) * factor));
    }
    EXPECT_EQ((*preparer)->restore_scale(matrix, prepared), 1.0F);
  }
}

// 3.2: both halves go through FP16 and the static quantiser, as fp8_tensor.h has it.
TEST(LayerNumbers, RequantiseGateAndUpOfFp8ToOneScale) {
  ExpertsShape shape = nvfp4_shape();
  shape.encoding = formats::kFp8Tensor;
  shape.scale_format = Format::kF32;
  std::mt19937 random(43);
  Layer layer = random_layer(shape, random);
  layer.scalars.one_scale = false;
  layer.scalars.gate_scale = {0.5F};
  layer.scalars.up_scale = {0.25F};
  for (std::byte& code : layer.tensors[LayerPart::kGateUp]) code &= std::byte{0x77};
  const auto preparer = make_preparer(Target::kFlashinferTrtllm, shape);
  ASSERT_TRUE(preparer);
  const auto made = made_by(**preparer, layer);
  const PreparedExpert prepared = expert_of(**preparer, made, 0);
  const SourceRows up(layer, Matrix::kUp, false, 0);
  Bytes row(64);
  (*preparer)->restore_codes(Matrix::kUp, 5, prepared, row);
  for (std::size_t at = 0; at < row.size(); ++at) {
    const auto stored = std::to_integer<std::uint8_t>(up.row(5)[at]);
    EXPECT_EQ(std::to_integer<std::uint8_t>(row[at]),
              formats::encode_e4m3(formats::decode_e4m3(stored) * 0.5F));
  }
  float scale = 0.0F;
  std::array<std::byte, 4> bytes{};
  (*preparer)->restore_scales(Matrix::kUp, 0, prepared, bytes);
  std::memcpy(&scale, bytes.data(), sizeof scale);
  EXPECT_EQ(scale, 0.5F);
}

TEST(LayerNumbers, KeepScalesOfFp8BlocksAwayFromZero) {
  ExpertsShape shape = nvfp4_shape();
  shape.encoding = formats::kFp8Block128;
  shape.scale_format = Format::kF32;
  shape.hidden = 256;
  shape.intermediate = 128;
  std::mt19937 random(45);
  Layer layer = random_layer(shape, random);
  const std::array<float, 2> down{0.0F, 2e-10F};
  std::memcpy(layer.tensors[LayerPart::kDownScales].data(), down.data(), sizeof down);
  const auto preparer = make_preparer(Target::kFlashinferTrtllm, shape);
  ASSERT_TRUE(preparer);
  const auto made = made_by(**preparer, layer);
  std::array<float, 2> found{};
  std::memcpy(found.data(), find(made, "w2_weight_scale_inv")->bytes.data(), sizeof found);
  EXPECT_EQ(found, (std::array<float, 2>{1e-10F, 2e-10F}));
}

TEST(LayerNumbers, KeepBiasesInTheNumbersOfTheKernels) {
  ExpertsShape shape = nvfp4_shape();
  shape.encoding = formats::kMxfp4;
  shape.scale_format = Format::kE8m0;
  shape.bias = true;
  shape.rows_in_turn = true;
  std::mt19937 random(44);
  const Layer layer = random_layer(shape, random);
  for (const auto& [target, dtype] : {std::pair{Target::kFlashinferTrtllm, Format::kF32},
                                      std::pair{Target::kFlashinferCutlass, Format::kBf16},
                                      std::pair{Target::kFlashinferB12x, Format::kBf16}}) {
    const auto preparer = make_preparer(target, shape);
    ASSERT_TRUE(preparer);
    const auto made = made_by(**preparer, layer);
    const PreparedExpert prepared = expert_of(**preparer, made, 0);
    EXPECT_EQ(find(made, "w13_bias")->dtype, dtype);
    for (std::uint64_t row = 0; row < 64; ++row) {
      EXPECT_EQ(
          (*preparer)->restore_bias(Matrix::kUp, row, prepared),
          formats::number_at(Format::kBf16, layer.tensors[LayerPart::kGateUpBias], 2 * row + 1));
      EXPECT_EQ((*preparer)->restore_bias(Matrix::kDown, row, prepared),
                formats::number_at(Format::kBf16, layer.tensors[LayerPart::kDownBias], row));
    }
  }
}

TEST(LayerNumbers, LeaveAwayWhatInputScalesAreMissingFor) {
  ExpertsShape shape = nvfp4_shape();
  const auto names = [&] {
    const auto preparer = make_preparer(Target::kFlashinferTrtllm, shape);
    std::vector<std::string> all;
    for (const EngineTensor& tensor : (*preparer)->tensors()) all.push_back(tensor.name);
    return all;
  };
  EXPECT_THAT(names(),
              ::testing::ElementsAre("w13_weight", "w2_weight", "w13_weight_scale",
                                     "w2_weight_scale", "w13_weight_scale_2", "w2_weight_scale_2"));
  shape.input_scales = true;
  EXPECT_THAT(names(), ::testing::IsSupersetOf({"w13_input_scale", "g1_alphas", "g2_alphas",
                                                "a1_gscale", "a2_gscale", "g1_scale_c"}));
  EXPECT_TRUE((*make_preparer(Target::kFlashinferTrtllm, shape))->wants_input_scales());
}

std::string refusal(Target target, const ExpertsShape& shape, const Options& options = {}) {
  const auto preparer = make_preparer(target, shape, options);
  return preparer ? "" : to_string(preparer.error());
}

TEST(LayerErrors, NameTheSizeThatIsNotTaken) {
  ExpertsShape shape = nvfp4_shape();
  EXPECT_EQ(refusal(Target::kFlashinferCutlass, shape), "");
  shape.hidden = 72;
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape),
              ::testing::AllOf(::testing::HasSubstr("hidden size: want a multiple of 16"),
                               ::testing::HasSubstr("found 72")));
  shape = nvfp4_shape();
  shape.intermediate = 0;
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape), ::testing::HasSubstr("intermediate"));
  shape.intermediate = std::uint64_t{1} << 62;
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape), ::testing::HasSubstr("at most"));
  shape = nvfp4_shape();
  shape.num_experts = std::uint64_t{1} << 60;
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape), ::testing::HasSubstr("a layer"));
  shape.num_experts = 0;
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape), ::testing::HasSubstr("experts"));
}

TEST(LayerErrors, NameWhatShufflesAndBlocksDoNotDivide) {
  ExpertsShape shape = nvfp4_shape();
  shape.encoding = formats::kPlainBf16;
  shape.hidden = 96;
  EXPECT_THAT(refusal(Target::kFlashinferTrtllm, shape), ::testing::HasSubstr("multiple of 128"));
  shape.encoding = formats::kFp8Tensor;
  shape.hidden = 48;
  EXPECT_THAT(refusal(Target::kFlashinferTrtllm, shape), ::testing::HasSubstr("rows of down"));
  shape.encoding = formats::kFp8Block128;
  shape.hidden = 128;
  shape.intermediate = 64;
  for (const Target target :
       {Target::kVllmCutlass, Target::kFlashinferCutlass, Target::kFlashinferTrtllm}) {
    EXPECT_THAT(refusal(target, shape), ::testing::HasSubstr("a multiple of 128"));
  }
}

TEST(LayerErrors, NameAVersionOfFlashinferThatNobodyKnows) {
  ExpertsShape shape = nvfp4_shape();
  shape.encoding = formats::kMxfp4;
  Options options;
  options.flashinfer = "0.6.16";
  EXPECT_EQ(refusal(Target::kFlashinferCutlass, shape, options), "");
  options.flashinfer = "0.5";
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape, options),
              ::testing::HasSubstr("want 0.7 or 0.6.16, found 0.5"));
}

TEST(LayerErrors, NameTheRoutesThatHaveAUseForAnOption) {
  ExpertsShape shape = nvfp4_shape();
  Options options;
  options.flashinfer = "0.6.16";
  for (const Target target : {Target::kVllmCutlass, Target::kFlashinferCutlass, Target::kMarlin}) {
    EXPECT_THAT(refusal(target, shape, options),
                ::testing::HasSubstr("--flashinfer 0.6.16: want a target that has a use for it: "
                                     "flashinfer-cutlass from mxfp4, found"));
  }
  options = {};
  options.fp8_activations = true;
  EXPECT_THAT(refusal(Target::kFlashinferTrtllm, shape, options),
              ::testing::HasSubstr("--fp8-activations: want a target that has a use for it: marlin "
                                   "from mxfp4, flashinfer-cutlass from mxfp4, found"));
  // The kernels of FP8 activations have another layout than SM90's.
  shape.encoding = formats::kMxfp4;
  EXPECT_EQ(refusal(Target::kFlashinferCutlass, shape, options), "");
  options.flashinfer = "0.6.16";
  EXPECT_THAT(refusal(Target::kFlashinferCutlass, shape, options),
              ::testing::HasSubstr("found --fp8-activations"));
}

TEST(LayerErrors, NameTheEncodingsOfATarget) {
  ExpertsShape shape = nvfp4_shape();
  shape.encoding = formats::kMxfp8;
  EXPECT_THAT(refusal(Target::kFlashinferB12x, shape), ::testing::HasSubstr("nvfp4, mxfp4"));
}

}  // namespace
}  // namespace lode::targets
