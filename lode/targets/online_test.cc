#include "lode/targets/online.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/f16.h"
#include "lode/formats/online_quantise.h"
#include "lode/targets/prepare_layer.h"

namespace lode::targets {
namespace {

using Bytes = std::vector<std::byte>;
using formats::Format;
using formats::OnlineScheme;

struct Layer {
  ExpertsShape shape;
  LayerTensors tensors;
};

Bytes random_numbers(std::uint64_t count, Format format, std::mt19937& random) {
  std::normal_distribution<float> number(0.0F, 0.02F);
  Bytes bytes(count * 2);
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = number(random);
    const std::uint16_t code =
        format == Format::kBf16 ? formats::encode_bf16(value) : formats::encode_f16(value);
    std::memcpy(bytes.data() + i * 2, &code, 2);
  }
  return bytes;
}

Layer layer_of(const formats::Encoding& encoding, bool gated, std::mt19937& random) {
  Layer layer;
  layer.shape.num_experts = 2;
  layer.shape.hidden = 256;
  layer.shape.intermediate = 128;
  layer.shape.gated = gated;
  layer.shape.encoding = encoding;
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    layer.tensors[part] =
        random_numbers(2 * part_bytes(layer.shape, part) / 2, encoding.element, random);
  }
  return layer;
}

/// The layer quantised as a whole beforehand, and what a checkpoint would say of it.
struct Quantised {
  Layer layer;
  LayerScalars scalars;
};

/// All experts' matrices of one part; their scales of the whole go to `scales`.
void quantise_part(const Layer& source, OnlineScheme scheme, LayerPart part, Quantised& out,
                   std::vector<float>& scales) {
  const bool down = part == LayerPart::kDown;
  const auto scale_part = down ? LayerPart::kDownScales : LayerPart::kGateUpScales;
  const ExpertsShape& shape = source.shape;
  const std::uint64_t rows = down ? shape.hidden : shape.num_halves() * shape.intermediate;
  const std::uint64_t k = down ? shape.intermediate : shape.hidden;
  const std::uint64_t bytes = part_bytes(shape, part);
  const std::uint64_t code_bytes = part_bytes(out.layer.shape, part);
  const bool one_scale = scheme == OnlineScheme::kTensorFp8;
  const std::uint64_t scale_bytes = one_scale ? 0 : part_bytes(out.layer.shape, scale_part);
  Bytes& codes = out.layer.tensors[part];
  Bytes& block_scales = out.layer.tensors[scale_part];
  codes.resize(shape.num_experts * code_bytes);
  block_scales.resize(shape.num_experts * scale_bytes);
  for (std::uint64_t e = 0; e < shape.num_experts; ++e) {
    const formats::OnlineRows matrix{source.tensors[part].data() + e * bytes, k * 2, rows, k,
                                     shape.encoding.element};
    const float amax = formats::largest_magnitude(matrix);
    EXPECT_TRUE(quantise_online(scheme, matrix, amax,
                                {rows, k, std::span(codes).subspan(e * code_bytes, code_bytes),
                                 std::span(block_scales).subspan(e * scale_bytes, scale_bytes)}));
    scales.push_back(formats::online_matrix_scale(scheme, amax));
  }
}

Quantised quantised(const Layer& source, const formats::OnlineSchemeInfo& scheme) {
  Quantised out;
  out.layer.shape = source.shape;
  out.layer.shape.encoding = scheme.encoding;
  out.layer.shape.scale_format = scheme.encoding.scale;
  LayerScalars& scalars = out.scalars;
  quantise_part(source, scheme.scheme, LayerPart::kGateUp, out, scalars.gate_scale);
  quantise_part(source, scheme.scheme, LayerPart::kDown, out, scalars.down_scale);
  if (!scheme.needs_amax) {
    scalars.gate_scale.clear();
    scalars.down_scale.clear();
  }
  if (source.shape.gated) scalars.up_scale = scalars.gate_scale;
  scalars.one_scale = true;
  if (scheme.scheme == OnlineScheme::kNv4) {
    out.layer.shape.input_scales = true;
    scalars.gate_input_scale = {1.0F, 1.0F};
    scalars.up_input_scale = {1.0F, 1.0F};
    scalars.down_input_scale = {1.0F, 1.0F};
    scalars.largest_gate_up_input_scale = 1.0F;
    scalars.largest_down_input_scale = 1.0F;
  }
  return out;
}

void expect_same(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name) << what;
    EXPECT_EQ(got[i].shape, want[i].shape) << what;
    EXPECT_TRUE(got[i].bytes == want[i].bytes) << what << " " << got[i].name;
  }
}

/// Expects of one target what it makes of the layer quantised beforehand. False if it takes none.
bool check_target(Target target, const Layer& layer, const formats::OnlineSchemeInfo& scheme) {
  const std::string what = std::string(scheme.name) + " to " + std::string(name(target));
  Options options;
  options.online = scheme.name;
  const auto online = make_preparer(target, layer.shape, options);
  if (!online) {
    EXPECT_EQ(online.error().code, Code::kUnsupported) << what;
    return false;
  }
  EXPECT_NE((*online)->refiner(), nullptr);
  const Quantised before = quantised(layer, scheme);
  const auto plain = make_preparer(target, before.layer.shape);
  EXPECT_TRUE(plain.has_value()) << what;
  if (!plain) return false;
  const auto want =
      prepare_layer(**plain, before.layer.shape, before.layer.tensors, before.scalars, {});
  EXPECT_TRUE(want.has_value()) << what << ": " << to_string(want.error());
  if (!want) return false;
  for (const LayerRun& run : {LayerRun{}, LayerRun{Way::kStreamed, 3, 9}}) {
    const auto got = prepare_layer(**online, layer.shape, layer.tensors, {}, run);
    EXPECT_TRUE(got.has_value()) << what << ": " << to_string(got.error());
    if (got) expect_same(*got, *want, what);
  }
  return true;
}

// Blocks of 128 are filled up before they are quantised: w13 of 2 * 192 rows of 256 becomes one of
// 2 * 256 rows, w2 of 256 rows of 192 one of rows of 256.
TEST(Online, PaddingIsCountedAsItIsWhereBlocksAreFilledUp) {
  std::mt19937 random(5);
  Layer layer = layer_of(formats::kPlainBf16, true, random);
  layer.shape.intermediate = 192;
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    Bytes& ones = layer.tensors[part];
    ones.resize(2 * part_bytes(layer.shape, part));
    for (std::size_t i = 0; i < ones.size(); ++i)
      ones[i] = i % 2 == 0 ? std::byte{0x80} : std::byte{0x3F};
  }
  Options options;
  options.online = "fp8-block";
  std::size_t targets_seen = 0;
  for (const TargetInfo& info : target_table()) {
    const auto preparer = make_preparer(info.target, layer.shape, options);
    if (!preparer) continue;
    ++targets_seen;
    const auto made = prepare_layer(**preparer, layer.shape, layer.tensors, {}, {});
    ASSERT_TRUE(made) << to_string(made.error());
    for (std::size_t i = 0; i < made->size(); ++i) {
      const EngineTensor& tensor = (*preparer)->tensors()[i];
      const std::string what = std::string(info.name) + " " + tensor.name;
      if (tensor.name.ends_with("_weight")) {
        const auto zeros = std::ranges::count((*made)[i].bytes, std::byte{});
        EXPECT_EQ(static_cast<std::uint64_t>(zeros), 2 * tensor.padding_bytes) << what;
        EXPECT_EQ(tensor.padding_bytes, tensor.needs.down && !tensor.needs.gate_up
                                            ? std::uint64_t{256 * 64}
                                            : std::uint64_t{2 * 64 * 256})
            << what;
      } else if (info.target == Target::kMarlin && tensor.name.starts_with("w13_weight_scale")) {
        EXPECT_EQ(tensor.padding_bytes, 2U * 2 * 64 * 2) << what;  // BF16 of 2 groups, 2 * 64 rows
      } else if (info.target == Target::kDeepgemm && tensor.name.starts_with("w13_weight_scale")) {
        // A word of four bytes a row, two of them of real rows filled.
        EXPECT_EQ(tensor.padding_bytes, 512U * 4 - 2 * 192 * 2) << what;
      } else if (info.target == Target::kVllmCutlass) {
        EXPECT_EQ(tensor.padding_bytes, 0U) << what;  // a block covers some rows at least
      }
    }
  }
  EXPECT_GE(targets_seen, 3U);
}

// The same as quantising the whole layer first: through every target that takes it.
TEST(Online, GivesWhatALayerThatWasQuantisedBeforeGives) {
  std::mt19937 random(3);
  std::set<std::string_view> taken;
  for (const formats::Encoding& encoding : {formats::kPlainBf16, formats::kPlainF16}) {
    for (const bool gated : {true, false}) {
      const Layer layer = layer_of(encoding, gated, random);
      for (const formats::OnlineSchemeInfo& scheme : formats::online_scheme_table()) {
        for (const TargetInfo& target : target_table()) {
          if (check_target(target.target, layer, scheme)) taken.insert(scheme.name);
        }
      }
    }
  }
  // No target takes INT8.
  EXPECT_EQ(taken, (std::set<std::string_view>{"fp8-tensor", "fp8-channel", "fp8-block", "mxfp8",
                                               "mxfp4", "nvfp4"}));
}

Result<std::unique_ptr<Preparer>> online(const Layer& layer, Target target, std::string scheme) {
  Options options;
  options.online = std::move(scheme);
  return make_preparer(target, layer.shape, options);
}

TEST(Online, RoundsSizesUpToBlocks) {
  std::mt19937 random(4);
  Layer layer = layer_of(formats::kPlainBf16, true, random);
  layer.shape.hidden = 200;
  layer.shape.intermediate = 100;
  const auto made = online(layer, Target::kDeepgemm, "fp8-block");
  ASSERT_TRUE(made.has_value()) << to_string(made.error());
  EXPECT_EQ((*made)->tensors()[0].shape, (tensor::Shape{2, 256, 256}));
  EXPECT_EQ((*made)->tensors()[1].shape, (tensor::Shape{2, 256, 128}));
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    layer.tensors[part].resize(2 * part_bytes(layer.shape, part));
  }
  const auto tensors = prepare_layer(**made, layer.shape, layer.tensors, {}, {});
  ASSERT_TRUE(tensors.has_value());
  const Bytes& w13 = (*tensors)[0].bytes;
  for (std::size_t column = 0; column < 256; ++column) {
    EXPECT_EQ(w13[100 * 256 + column], std::byte{0});  // behind gate
  }
  // And its rows come back without their padding.
  PreparedExpert expert;
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    expert.push_back(std::span((*tensors)[i].bytes).first((*made)->tensors()[i].expert_bytes));
  }
  Bytes row(200);
  (*made)->restore_codes(Matrix::kUp, 5, expert, row);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), w13.begin() + (128 + 5) * 256));
}

// A layer with biases, none of them zero, whose sizes are not whole blocks.
Layer biased_layer(bool in_turn, Format bias_format, std::mt19937& random) {
  Layer layer;
  layer.shape.num_experts = 2;
  layer.shape.hidden = 96;
  layer.shape.intermediate = 160;
  layer.shape.encoding = formats::kPlainBf16;
  layer.shape.rows_in_turn = in_turn;
  layer.shape.bias = true;
  layer.shape.bias_format = bias_format;
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    layer.tensors[part] = random_numbers(part_bytes(layer.shape, part), Format::kBf16, random);
  }
  for (const LayerPart part : {LayerPart::kGateUpBias, LayerPart::kDownBias}) {
    Bytes& bytes = layer.tensors[part];
    bytes.resize(2 * part_bytes(layer.shape, part));
    std::uint16_t code = 0x3F80;  // 1.0 and what follows it, in both formats: BF16 is F32's half
    const std::size_t width = bias_format == Format::kF32 ? 4 : 2;
    for (std::size_t at = width - 2; at < bytes.size(); at += width, ++code) {
      std::memcpy(bytes.data() + at, &code, 2);
    }
  }
  return layer;
}

std::size_t count_not_zero(std::span<const std::byte> bytes, Format format) {
  std::size_t count = 0;
  const std::size_t numbers = bytes.size() * 8 / formats::info(format).bits;
  for (std::size_t i = 0; i < numbers; ++i) count += formats::number_at(format, bytes, i) != 0.0F;
  return count;
}

/// Expects the source's biases, each in its place, and zeros beside them.
void expect_biases(const Preparer& preparer, const Layer& layer,
                   const std::vector<NamedTensor>& made, const std::string& what) {
  const ExpertsShape& shape = layer.shape;
  for (std::uint64_t e = 0; e < shape.num_experts; ++e) {
    PreparedExpert expert;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::uint64_t bytes = preparer.tensors()[i].expert_bytes;
      expert.push_back(std::span(made[i].bytes).subspan(e * bytes, bytes));
      if (!made[i].name.ends_with("bias")) continue;
      const bool down = made[i].name.starts_with("w2");
      EXPECT_EQ(count_not_zero(expert.back(), made[i].dtype),
                down ? shape.hidden : 2 * shape.intermediate)
          << what << " " << made[i].name;
    }
    for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
      const bool down = matrix == Matrix::kDown;
      const std::uint64_t rows = down ? shape.hidden : shape.intermediate;
      const Bytes& stored = layer.tensors[down ? LayerPart::kDownBias : LayerPart::kGateUpBias];
      const std::uint64_t up = matrix == Matrix::kUp ? 1 : 0;
      for (std::uint64_t row = 0; row < rows; ++row) {
        const std::uint64_t at = down                 ? e * rows + row
                                 : shape.rows_in_turn ? e * 2 * rows + 2 * row + up
                                                      : (2 * e + up) * rows + row;
        ASSERT_EQ(preparer.restore_bias(matrix, row, expert),
                  formats::number_at(shape.bias_format, stored, at))
            << what << " row " << row;
      }
    }
  }
}

// Weights are rounded up to whole blocks when they are quantised; biases stay as long as they were.
TEST(Online, PutsZerosBehindBiasesThatAreShorterThanTheQuantisedWeights) {
  std::mt19937 random(7);
  std::set<std::string_view> taken;
  std::set<std::string_view> of_blocks;
  for (const bool in_turn : {false, true}) {
    for (const Format bias_format : {Format::kBf16, Format::kF32}) {
      const Layer layer = biased_layer(in_turn, bias_format, random);
      for (const formats::OnlineSchemeInfo& scheme : formats::online_scheme_table()) {
        for (const TargetInfo& target : target_table()) {
          const auto made = online(layer, target.target, std::string(scheme.name));
          if (!made) {
            EXPECT_EQ(made.error().code, Code::kUnsupported);
            continue;
          }
          const std::string what = std::string(scheme.name) + " to " + std::string(target.name);
          const auto tensors = prepare_layer(**made, layer.shape, layer.tensors, {}, {});
          ASSERT_TRUE(tensors.has_value()) << what << ": " << to_string(tensors.error());
          expect_biases(**made, layer, *tensors, what);
          taken.insert(scheme.name);
          if (scheme.scheme == OnlineScheme::kBlockFp8) of_blocks.insert(target.name);
        }
      }
    }
  }
  EXPECT_EQ(taken.size(), 6U);
  // Without deepgemm: it has nowhere to put biases.
  EXPECT_EQ(of_blocks, (std::set<std::string_view>{"flashinfer-cutlass", "flashinfer-trtllm",
                                                   "marlin", "vllm-cutlass"}));
}

TEST(Online, RefusesWhatItCannotQuantise) {
  std::mt19937 random(5);
  Layer layer = layer_of(formats::kPlainBf16, true, random);
  EXPECT_EQ(online(layer, Target::kMarlin, "fp5").error().code, Code::kUsage);
  layer.shape.hidden = 48;
  EXPECT_EQ(online(layer, Target::kMarlin, "mxfp4").error().code, Code::kUnsupported);
  layer.shape.hidden = 0;
  EXPECT_EQ(online(layer, Target::kMarlin, "fp8-tensor").error().code, Code::kUnsupported);
  layer.shape.hidden = 256;
  layer.shape.encoding = formats::kFp8Tensor;
  EXPECT_EQ(online(layer, Target::kMarlin, "mxfp4").error().code, Code::kUnsupported);
  layer.shape.encoding = formats::kPlainBf16;
  EXPECT_EQ(online(layer, Target::kMarlin, "int8-channel").error().code, Code::kUnsupported);
}

TEST(Online, RefusesNumbersThatAreNotFinite) {
  std::mt19937 random(6);
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    Layer layer = layer_of(formats::kPlainBf16, true, random);
    const std::uint16_t infinity = 0x7F80;
    std::memcpy(layer.tensors[part].data() + 3000, &infinity, 2);
    for (const char* scheme : {"fp8-tensor", "mxfp4", "nvfp4"}) {
      const auto made = online(layer, Target::kMarlin, scheme);
      ASSERT_TRUE(made.has_value());
      const auto tensors = prepare_layer(**made, layer.shape, layer.tensors, {}, {});
      ASSERT_FALSE(tensors.has_value()) << scheme;
      EXPECT_EQ(tensors.error().code, Code::kInvalidSource);
      EXPECT_EQ(tensors.error().thing,
                part == LayerPart::kDown ? "weights of down" : "weights of gate and up");
    }
  }
}

}  // namespace
}  // namespace lode::targets
