// Experts for the Marlin kernels through the routes: golden bytes, random layers in all ways, what
// is restored, sizes, and what is refused.
#include "lode/targets/marlin.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/e4m3.h"
#include "lode/layout/nvfp4_reconcile.h"
#include "lode/targets/prepare_layer.h"
#include "lode/targets/target.h"
#include "lode/targets/test_golden_functions.h"

namespace lode::targets {
namespace {

using formats::Encoding;
using formats::Format;
using Bytes = std::vector<std::byte>;

constexpr Encoding kFp8Block64{Format::kE4m3, Format::kF32, 64, 64, true};
constexpr Encoding kFp8Block16By32{Format::kE4m3, Format::kF32, 16, 32, true};

std::vector<float> floats_of(const Bytes& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  return numbers;
}

// A golden layer as the loader would have it, through the route.
struct GoldenLayer {
  const char* name;
  Encoding encoding;
  std::uint64_t experts, hidden, intermediate;
  Format activations = Format::kBf16;
  bool gated = true;
};

ExpertsShape shape_of(const GoldenLayer& golden) {
  ExpertsShape shape;
  shape.num_experts = golden.experts;
  shape.hidden = golden.hidden;
  shape.intermediate = golden.intermediate;
  shape.gated = golden.gated;
  shape.encoding = golden.encoding;
  shape.scale_format = golden.encoding.scale;
  shape.model_format = golden.activations;
  return shape;
}

void expect_golden(const GoldenLayer& golden) {
  const layout::testing::GoldenCase file(golden.name);
  const ExpertsShape shape = shape_of(golden);
  LayerTensors tensors;
  tensors[LayerPart::kGateUp] = file.bytes("in.w13");
  tensors[LayerPart::kDown] = file.bytes("in.w2");
  LayerScalars scalars;
  const bool nvfp4 = golden.encoding == formats::kNvfp4;
  if (nvfp4 || golden.encoding == formats::kFp8Tensor) {
    const auto gate_up = floats_of(file.bytes(nvfp4 ? "in.w13_scale_2" : "in.w13_scale"));
    const std::size_t each = gate_up.size() / golden.experts;
    for (std::size_t expert = 0; expert < golden.experts; ++expert) {
      scalars.gate_scale.push_back(gate_up[expert * each]);
      scalars.up_scale.push_back(gate_up[expert * each + each - 1]);
    }
    scalars.down_scale = floats_of(file.bytes(nvfp4 ? "in.w2_scale_2" : "in.w2_scale"));
  }
  if (golden.encoding != formats::kFp8Tensor) {
    tensors[LayerPart::kGateUpScales] = file.bytes("in.w13_scale");
    tensors[LayerPart::kDownScales] = file.bytes("in.w2_scale");
  }
  const auto preparer = make_preparer(Target::kMarlin, shape);
  ASSERT_TRUE(preparer) << to_string(preparer.error());
  const auto made = prepare_layer(**preparer, shape, tensors, scalars, {Way::kStreamed, 2, 7});
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_EQ((*made)[0].bytes, file.bytes("out.w13")) << golden.name;
  EXPECT_EQ((*made)[1].bytes, file.bytes("out.w2")) << golden.name;
  EXPECT_EQ((*made)[2].bytes, file.bytes("out.w13_scale")) << golden.name;
  EXPECT_EQ((*made)[3].bytes, file.bytes("out.w2_scale")) << golden.name;
  if (!nvfp4) return;
  EXPECT_EQ((*made)[4].bytes, file.bytes("out.w13_scale_2")) << golden.name;
  EXPECT_EQ((*made)[5].bytes, file.bytes("out.w2_scale_2")) << golden.name;
}

TEST(MarlinRoutes, MakeTheEnginesBytes) {
  const Encoding nvfp4 = formats::kNvfp4;
  expect_golden({"nvfp4_marlin_moe_gated", nvfp4, 3, 128, 64});
  expect_golden({"nvfp4_marlin_moe_gated_fp16", nvfp4, 3, 128, 64, Format::kF16});
  expect_golden({"nvfp4_marlin_moe_gated_k64_pad128", nvfp4, 2, 64, 80});
  expect_golden({"nvfp4_marlin_moe_gated_pad64", nvfp4, 3, 128, 48});
  expect_golden({"nvfp4_marlin_moe_nongated_pad", nvfp4, 3, 128, 80, Format::kBf16, false});
  expect_golden({"fp8_marlin_moe_tensor_e", formats::kFp8Tensor, 2, 128, 64});
  expect_golden({"fp8_marlin_moe_tensor_e2_pad", formats::kFp8Tensor, 3, 64, 48, Format::kF16});
  expect_golden({"fp8_marlin_moe_channel", formats::kFp8Channel, 3, 64, 64});
  expect_golden({"fp8_marlin_moe_block64", kFp8Block64, 2, 128, 64});
  expect_golden({"fp8_marlin_moe_block_128_single", formats::kFp8Block128, 1, 256, 128});
  expect_golden({"fp8_marlin_moe_block_16x32_pad", kFp8Block16By32, 2, 64, 96});
  expect_golden({"mxfp8_marlin_moe_bf16", formats::kMxfp8, 2, 64, 64});
  expect_golden({"mxfp8_marlin_moe_pad", formats::kMxfp8, 2, 64, 96});
}

// A layer of random numbers, scales of which nothing is lost on the way.
struct RandomLayer {
  ExpertsShape shape;
  LayerTensors tensors;
  LayerScalars scalars;
};

std::byte random_scale(const Encoding& encoding, std::mt19937& random) {
  if (encoding.scale == Format::kE4m3) return static_cast<std::byte>(0x18 + random() % 0x40);
  return static_cast<std::byte>(104 + random() % 38);  // F16 holds those
}

void fill_scales(RandomLayer& layer, LayerPart part, std::mt19937& random) {
  const Encoding& encoding = layer.shape.encoding;
  Bytes& bytes = layer.tensors[part];
  bytes.resize(layer.shape.num_experts * part_bytes(layer.shape, part));
  if (formats::info(encoding.scale).bits == 8) {
    for (std::byte& byte : bytes) byte = random_scale(encoding, random);
    return;
  }
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    const float scale = std::ldexp(1.0F + static_cast<float>(random() % 128) / 128.0F,
                                   -static_cast<int>(random() % 9));  // BF16 and F16 hold it
    std::memcpy(bytes.data() + at, &scale, sizeof(scale));
  }
}

RandomLayer random_layer(const ExpertsShape& shape, std::mt19937& random) {
  RandomLayer layer{shape, {}, {}};
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    Bytes& bytes = layer.tensors[part];
    bytes.resize(shape.num_experts * part_bytes(shape, part));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }
  if (shape.encoding.block_rows != formats::kWhole) {
    fill_scales(layer, LayerPart::kGateUpScales, random);
    fill_scales(layer, LayerPart::kDownScales, random);
  }
  for (const LayerPart part : {LayerPart::kGateUpBias, LayerPart::kDownBias}) {
    if (!shape.bias) continue;
    Bytes& bytes = layer.tensors[part];
    bytes.resize(shape.num_experts * part_bytes(shape, part));
    for (std::size_t at = 1; at < bytes.size(); at += 2) {
      bytes[at] = static_cast<std::byte>(0x3C + random() % 4);  // numbers near one
    }
  }
  for (std::uint64_t expert = 0; expert < shape.num_experts; ++expert) {
    const float scale = 0.25F + static_cast<float>(random() % 64) / 64.0F;
    layer.scalars.gate_scale.push_back(scale);
    layer.scalars.up_scale.push_back(scale);
    layer.scalars.down_scale.push_back(2.0F * scale);
  }
  return layer;
}

ExpertsShape random_shape(const Encoding& encoding, std::mt19937& random) {
  ExpertsShape shape;
  const std::uint64_t group = std::max<std::uint32_t>(encoding.block_k, 16);
  shape.num_experts = 1 + random() % 2;
  shape.hidden = 128 * (1 + random() % 2);
  shape.intermediate = group * (1 + random() % (group < 64 ? 7 : 2));
  shape.gated = random() % 3 != 0;
  shape.rows_in_turn = shape.gated && encoding == formats::kMxfp4 && random() % 2 == 0;
  shape.bias = random() % 2 == 0;
  shape.encoding = encoding;
  shape.scale_format = encoding.scale;
  shape.model_format = random() % 4 == 0 ? Format::kF16 : Format::kBf16;
  shape.bias_format = Format::kBf16;
  return shape;
}

std::vector<PreparedExpert> experts_in(const Preparer& preparer,
                                       const std::vector<NamedTensor>& made,
                                       std::uint64_t num_experts) {
  std::vector<PreparedExpert> experts(num_experts);
  for (std::size_t tensor = 0; tensor < made.size(); ++tensor) {
    const std::uint64_t bytes = preparer.tensors()[tensor].expert_bytes;
    for (std::uint64_t expert = 0; expert < num_experts; ++expert) {
      experts[expert].push_back(std::span(made[tensor].bytes).subspan(expert * bytes, bytes));
    }
  }
  return experts;
}

layout::MatrixRows rows_of(const RandomLayer& layer, LayerPart part, std::uint64_t expert) {
  const std::uint64_t bytes = part_bytes(layer.shape, part);
  const bool down =
      part == LayerPart::kDown || part == LayerPart::kDownScales || part == LayerPart::kDownBias;
  const std::uint64_t rows =
      down ? layer.shape.hidden : layer.shape.num_halves() * layer.shape.intermediate;
  const bool scales = part == LayerPart::kGateUpScales || part == LayerPart::kDownScales;
  const std::uint64_t stored =
      !scales ? rows
      : down  ? formats::scale_rows(layer.shape.encoding, rows)
              : layer.shape.num_halves() *
                   formats::scale_rows(layer.shape.encoding, layer.shape.intermediate);
  return layout::rows_of(std::span(layer.tensors[part]).subspan(expert * bytes, bytes),
                         down ? 1 : layer.shape.num_halves(), stored == 0 ? 0 : bytes / stored,
                         layer.shape.rows_in_turn && !down ? layout::GateUpOrder::kGateUpInTurn
                                                           : layout::GateUpOrder::kGateThenUp);
}

// What a row's scales are, written out by the source: as numbers.
std::vector<float> source_scales(const RandomLayer& layer, Matrix matrix, std::uint64_t expert,
                                 const layout::HalfRow& row) {
  const Encoding& encoding = layer.shape.encoding;
  const bool down = matrix == Matrix::kDown;
  if (encoding.block_rows == formats::kWhole) {
    return {down            ? layer.scalars.down_scale[expert]
            : row.half == 1 ? layer.scalars.up_scale[expert]
                            : layer.scalars.gate_scale[expert]};
  }
  const auto rows =
      rows_of(layer, down ? LayerPart::kDownScales : LayerPart::kGateUpScales, expert);
  const auto bytes = rows.row({row.half, row.row / encoding.block_rows});
  std::vector<float> scales;
  for (std::uint64_t at = 0; at < bytes.size() * 8 / formats::info(encoding.scale).bits; ++at) {
    scales.push_back(formats::number_at(encoding.scale, bytes, at));
  }
  return scales;
}

void expect_restored(const RandomLayer& layer, const Preparer& preparer,
                     const std::vector<NamedTensor>& made) {
  const ExpertsShape& shape = layer.shape;
  const Encoding restored = preparer.restored_encoding();
  const auto experts = experts_in(preparer, made, shape.num_experts);
  const bool nvfp4 = restored == formats::kNvfp4;
  for (std::uint64_t expert = 0; expert < shape.num_experts; ++expert) {
    for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
      if (matrix == Matrix::kUp && !shape.gated) continue;
      const bool down = matrix == Matrix::kDown;
      const std::uint64_t k = down ? shape.intermediate : shape.hidden;
      const float all = preparer.restore_scale(matrix, experts[expert]);
      const float wanted_all =
          !nvfp4 ? 1.0F : (down ? layer.scalars.down_scale : layer.scalars.gate_scale)[expert];
      const auto codes = rows_of(layer, down ? LayerPart::kDown : LayerPart::kGateUp, expert);
      Bytes row_codes(codes.row_bytes);
      Bytes scales(formats::scale_columns(restored, k) * formats::info(restored.scale).bits / 8);
      for (std::uint64_t row = 0; row < (down ? shape.hidden : shape.intermediate); ++row) {
        const layout::HalfRow at{matrix == Matrix::kUp ? 1U : 0U, row};
        preparer.restore_codes(matrix, row, experts[expert], row_codes);
        const auto want = codes.row(at);
        ASSERT_EQ(row_codes, Bytes(want.begin(), want.end())) << "row " << row;
        preparer.restore_scales(matrix, row, experts[expert], scales);
        const auto numbers = source_scales(layer, matrix, expert, at);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          // Both factors are powers of two apart from the source's, so the product is exact.
          ASSERT_EQ(formats::number_at(restored.scale, scales, i) * all, numbers[i] * wanted_all)
              << "row " << row << " group " << i;
        }
        if (!shape.bias) continue;
        const auto bias =
            rows_of(layer, down ? LayerPart::kDownBias : LayerPart::kGateUpBias, expert);
        ASSERT_EQ(preparer.restore_bias(matrix, row, experts[expert]),
                  formats::number_at(shape.bias_format, bias.row(at), 0));
      }
    }
  }
}

class MarlinLayers : public ::testing::TestWithParam<Encoding> {};

TEST_P(MarlinLayers, AreTheSameInAllWaysAndReadBack) {
  std::mt19937 random(11);
  for (int i = 0; i < 8; ++i) {
    const RandomLayer layer = random_layer(random_shape(GetParam(), random), random);
    const auto preparer = make_preparer(Target::kMarlin, layer.shape);
    ASSERT_TRUE(preparer) << to_string(preparer.error());
    std::vector<NamedTensor> first;
    for (const LayerRun& run : {LayerRun{Way::kOutOfPlace, 1, 1}, LayerRun{Way::kInPlace, 2, 2},
                                LayerRun{Way::kStreamed, 2, 3 + random() % 9}}) {
      auto made = prepare_layer(**preparer, layer.shape, layer.tensors, layer.scalars, run);
      ASSERT_TRUE(made) << to_string(made.error());
      if (first.empty())
        first = *std::move(made);
      else {
        for (std::size_t tensor = 0; tensor < first.size(); ++tensor) {
          ASSERT_EQ((*made)[tensor].bytes, first[tensor].bytes) << first[tensor].name;
        }
      }
    }
    expect_restored(layer, **preparer, first);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MarlinLayers,
                         ::testing::Values(formats::kNvfp4, formats::kNvfp4Divisor, formats::kMxfp4,
                                           formats::kMxfp8, formats::kFp8Tensor,
                                           formats::kFp8Channel, formats::kFp8Block128,
                                           kFp8Block16By32));

// Everything is nonzero, so what is zero is padding.
TEST(MarlinLayer, HasAsManyBytesOfPaddingAsItSays) {
  ExpertsShape shape;
  shape.num_experts = 1;
  shape.hidden = 320;
  shape.intermediate = 160;
  shape.bias = true;
  shape.encoding = formats::kMxfp4;
  shape.scale_format = Format::kE8m0;
  RandomLayer layer{shape, {}, {}};
  for (std::size_t part = 0; part < kNumLayerParts; ++part) {
    layer.tensors.parts[part].assign(part_bytes(shape, static_cast<LayerPart>(part)),
                                     std::byte{0x41});
  }
  const auto preparer = make_preparer(Target::kMarlin, shape);
  ASSERT_TRUE(preparer);
  const auto made = prepare_layer(**preparer, shape, layer.tensors, layer.scalars, {});
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 6U);
  for (std::size_t tensor = 0; tensor < made->size(); ++tensor) {
    const auto zeros = std::ranges::count((*made)[tensor].bytes, std::byte{0});
    EXPECT_EQ(static_cast<std::uint64_t>(zeros), (*preparer)->tensors()[tensor].padding_bytes)
        << (*made)[tensor].name;
  }
  // The engines load MXFP4 into 256 hidden and 128 intermediate (weight_layouts 2.8).
  EXPECT_EQ((*made)[0].shape, (std::vector<std::uint64_t>{1, 512 / 16, 2 * 2 * 256}));
  EXPECT_EQ((*made)[1].shape, (std::vector<std::uint64_t>{1, 256 / 16, 2 * 512}));
  EXPECT_EQ((*made)[2].shape, (std::vector<std::uint64_t>{1, 512 / 32, 2 * 256}));
  EXPECT_EQ((*made)[5].shape, (std::vector<std::uint64_t>{1, 512}));
}

RandomLayer small_nvfp4(std::mt19937& random) {
  ExpertsShape shape;
  shape.num_experts = 2;
  shape.hidden = 128;
  shape.intermediate = 64;
  shape.encoding = formats::kNvfp4;
  shape.scale_format = Format::kE4m3;
  return random_layer(shape, random);
}

// Field report 46: the engines would read up with gate's scale.
TEST(MarlinLayer, BringsGateAndUpToOneScaleWhereTheyHaveTwo) {
  std::mt19937 random(13);
  RandomLayer layer = small_nvfp4(random);
  layer.scalars.gate_scale = {0.5F, 0.5F};
  layer.scalars.up_scale = {0.5F, 1.85F};  // 3.7 times as large
  const auto preparer = make_preparer(Target::kMarlin, layer.shape);
  ASSERT_TRUE(preparer);
  const auto made = prepare_layer(**preparer, layer.shape, layer.tensors, layer.scalars, {});
  ASSERT_TRUE(made);
  const auto experts = experts_in(**preparer, *made, 2);
  for (std::uint64_t expert = 0; expert < 2; ++expert) {
    const float common = (*preparer)->restore_scale(Matrix::kUp, experts[expert]);
    EXPECT_EQ(common, (*preparer)->restore_scale(Matrix::kGate, experts[expert]));
    for (const Matrix matrix : {Matrix::kGate, Matrix::kUp}) {
      const bool rounded = expert == 1 && matrix == Matrix::kGate;
      Bytes scales(128 / 16);
      for (std::uint64_t row = 0; row < 64; ++row) {
        (*preparer)->restore_scales(matrix, row, experts[expert], scales);
        const auto want = source_scales(layer, matrix, expert, {matrix == Matrix::kUp, row});
        const float own =
            (matrix == Matrix::kUp ? layer.scalars.up_scale : layer.scalars.gate_scale)[expert];
        for (std::size_t i = 0; i < want.size(); ++i) {
          const float got = formats::number_at(Format::kE4m3, scales, i) * common;
          // One rounding to three bits of mantissa: half of 2^-3, and fp32's own.
          const float allowed = rounded ? want[i] * own * 0.0626F : 0.0F;
          ASSERT_NEAR(got, want[i] * own, allowed) << "row " << row << " group " << i;
        }
      }
    }
  }
}

TEST(MarlinLayer, TakesEightBitActivationsOnlyWithMxfp4) {
  std::mt19937 random(17);
  Options narrow;
  narrow.fp8_activations = true;
  for (const Encoding& encoding : {formats::kNvfp4, formats::kFp8Channel, formats::kMxfp8}) {
    const auto made = make_preparer(Target::kMarlin, random_shape(encoding, random), narrow);
    ASSERT_FALSE(made) << formats::name(encoding);
    EXPECT_EQ(made.error().code, Code::kUsage);
  }
  ExpertsShape shape = random_shape(formats::kMxfp4, random);
  shape.model_format = Format::kBf16;
  const RandomLayer layer = random_layer(shape, random);
  const auto preparer = make_preparer(Target::kMarlin, shape, narrow);
  ASSERT_TRUE(preparer) << to_string(preparer.error());
  const auto made = prepare_layer(**preparer, shape, layer.tensors, layer.scalars, {});
  ASSERT_TRUE(made);
  expect_restored(layer, **preparer, *made);
}

TEST(MarlinLayer, RefusesWhatTheKernelsDoNotTake) {
  const auto refused = [](ExpertsShape shape, const std::string& thing) {
    shape.num_experts = 1;
    shape.scale_format = shape.encoding.scale;
    const auto made = make_preparer(Target::kMarlin, shape);
    ASSERT_FALSE(made) << thing;
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    EXPECT_NE(to_string(made.error()).find(thing), std::string::npos) << to_string(made.error());
    EXPECT_FALSE(made.error().wanted.empty());
    EXPECT_FALSE(made.error().found.empty());
  };
  ExpertsShape shape;
  shape.encoding = formats::kNvfp4;
  shape.hidden = 96;
  shape.intermediate = 64;
  refused(shape, "hidden size");
  shape.hidden = 128;
  shape.intermediate = 72;  // not whole groups of 16
  refused(shape, "down (w2)");
  shape.intermediate = 0;
  refused(shape, "intermediate 0");
  shape.intermediate = std::uint64_t{1} << 60;
  refused(shape, "sizes of experts");
  shape.intermediate = 64;
  shape.model_format = Format::kF32;
  refused(shape, "activations");
  shape.model_format = Format::kBf16;
  shape.encoding = formats::kInt8Row128;
  refused(shape, "int8-row128");
  shape.encoding = formats::kPlainBf16;
  refused(shape, "bf16");
  shape.encoding = formats::kFp8Block128;
  shape.hidden = 192;  // not whole groups of 128
  shape.intermediate = 128;
  refused(shape, "gate and up (w13)");
}

}  // namespace
}  // namespace lode::targets
