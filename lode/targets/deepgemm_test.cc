#include "lode/targets/deepgemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/targets/prepare_layer.h"

namespace lode::targets {
namespace {

using Bytes = std::vector<std::byte>;
using formats::Format;

struct Layer {
  ExpertsShape shape;
  LayerTensors tensors;
};

std::vector<NamedTensor> prepared(const Preparer& preparer, const Layer& layer, LayerRun run) {
  auto made = prepare_layer(preparer, layer.shape, layer.tensors, {}, run);
  EXPECT_TRUE(made.has_value());
  return made ? *std::move(made) : std::vector<NamedTensor>();
}

/// All three ways, threads and chunks give what the first gives.
std::vector<NamedTensor> prepared_every_way(const Preparer& preparer, const Layer& layer) {
  std::vector<NamedTensor> first = prepared(preparer, layer, {});
  for (const Way way : {Way::kInPlace, Way::kStreamed}) {
    for (const std::size_t num_threads : {1U, 3U}) {
      const auto other = prepared(preparer, layer, {way, num_threads, 7 + num_threads});
      EXPECT_EQ(other.size(), first.size());
      for (std::size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
        EXPECT_EQ(other[i].bytes, first[i].bytes) << first[i].name;
      }
    }
  }
  return first;
}

std::unique_ptr<Preparer> preparer_of(const Layer& layer) {
  auto made = make_preparer(Target::kDeepgemm, layer.shape);
  EXPECT_TRUE(made.has_value()) << (made ? "" : to_string(made.error()));
  return made ? *std::move(made) : nullptr;
}

Bytes random_bytes(std::uint64_t size, std::mt19937& random) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

PreparedExpert expert_of(const Preparer& preparer, const std::vector<NamedTensor>& tensors,
                         std::uint64_t expert_idx) {
  PreparedExpert parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = preparer.tensors()[i].expert_bytes;
    parts.push_back(std::span(tensors[i].bytes).subspan(expert_idx * bytes, bytes));
  }
  return parts;
}

struct Sizes {
  std::uint64_t num_experts, hidden, intermediate;
};

Layer mxfp4_layer(const Sizes& sizes, bool gated, bool in_turn, std::mt19937& random) {
  Layer layer;
  ExpertsShape& shape = layer.shape;
  shape = {.num_experts = sizes.num_experts,
           .hidden = sizes.hidden,
           .intermediate = sizes.intermediate,
           .gated = gated,
           .rows_in_turn = in_turn,
           .bias = true,
           .encoding = formats::kMxfp4,
           .scale_format = Format::kE8m0};
  for (std::size_t part = 0; part < kNumLayerParts; ++part) {
    layer.tensors.parts[part] =
        random_bytes(sizes.num_experts * part_bytes(shape, static_cast<LayerPart>(part)), random);
  }
  return layer;
}

std::vector<Matrix> matrices(const ExpertsShape& shape) {
  if (!shape.gated) return {Matrix::kGate, Matrix::kDown};
  return {Matrix::kGate, Matrix::kUp, Matrix::kDown};
}

/// Row `row` of a matrix's part `part` (gate and up's) of the source.
Bytes source_row(const Layer& layer, std::uint64_t expert, Matrix matrix, std::uint64_t row,
                 LayerPart gate_up_part) {
  const bool down = matrix == Matrix::kDown;
  const auto part = static_cast<LayerPart>(static_cast<int>(gate_up_part) + (down ? 1 : 0));
  const std::uint64_t bytes = part_bytes(layer.shape, part);
  const std::uint64_t halves = down ? 1 : layer.shape.num_halves();
  std::uint64_t rows = down ? layer.shape.hidden : layer.shape.intermediate;
  if (gate_up_part == LayerPart::kGateUpScales) {
    rows = formats::scale_rows(layer.shape.encoding, rows);
  }
  const std::uint64_t half = matrix == Matrix::kUp ? 1 : 0;
  const std::uint64_t row_bytes = bytes / halves / rows;
  const std::uint64_t at =
      layer.shape.rows_in_turn && !down ? row * halves + half : half * rows + row;
  const auto first =
      layer.tensors[part].begin() + static_cast<std::ptrdiff_t>(expert * bytes + at * row_bytes);
  return {first, first + static_cast<std::ptrdiff_t>(row_bytes)};
}

std::uint64_t zeros(const std::vector<NamedTensor>& tensors) {
  std::ptrdiff_t count = 0;
  for (const NamedTensor& tensor : tensors) {
    count += std::ranges::count(tensor.bytes, std::byte{0});
  }
  return static_cast<std::uint64_t>(count);
}

void expect_comes_back(const Preparer& preparer, const Layer& layer,
                       const std::vector<NamedTensor>& tensors) {
  for (std::uint64_t e = 0; e < layer.shape.num_experts; ++e) {
    const PreparedExpert expert = expert_of(preparer, tensors, e);
    for (const Matrix matrix : matrices(layer.shape)) {
      const bool down = matrix == Matrix::kDown;
      const std::uint64_t rows = down ? layer.shape.hidden : layer.shape.intermediate;
      for (std::uint64_t row = 0; row < rows; ++row) {
        const Bytes codes = source_row(layer, e, matrix, row, LayerPart::kGateUp);
        const Bytes scales = source_row(layer, e, matrix, row, LayerPart::kGateUpScales);
        const Bytes bias = source_row(layer, e, matrix, row, LayerPart::kGateUpBias);
        Bytes got_codes(codes.size()), got_scales(scales.size());
        preparer.restore_codes(matrix, row, expert, got_codes);
        preparer.restore_scales(matrix, row, expert, got_scales);
        ASSERT_EQ(got_codes, codes);
        ASSERT_EQ(got_scales, scales);
        const float number = formats::number_at(Format::kBf16, bias, 0);
        const float got = preparer.restore_bias(matrix, row, expert);
        ASSERT_TRUE(got == number || (std::isnan(got) && std::isnan(number)));
      }
    }
  }
}

// Every byte of the source is above 0: what is 0 is padding.
TEST(DeepgemmMxfp4, ComesBackAndIsZeroElsewhere) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 12; ++trial) {
    const Sizes sizes{1 + random() % 3, 32 * (1 + random() % 5), 32 * (1 + random() % 5)};
    const bool gated = trial % 3 != 0;
    Layer layer = mxfp4_layer(sizes, gated, gated && trial % 2 == 0, random);
    for (auto& part : layer.tensors.parts) {
      for (std::byte& byte : part) byte |= std::byte{1};
    }
    const auto preparer = preparer_of(layer);
    ASSERT_NE(preparer, nullptr);
    const auto tensors = prepared_every_way(*preparer, layer);
    expect_comes_back(*preparer, layer, tensors);
    std::uint64_t padding = 0;
    for (const EngineTensor& tensor : preparer->tensors()) {
      padding += tensor.padding_bytes * sizes.num_experts;
    }
    EXPECT_EQ(zeros(tensors), padding);
  }
}

Layer fp8_layer(const Sizes& sizes, bool gated, Format scale_format, std::mt19937& random) {
  Layer layer;
  ExpertsShape& shape = layer.shape;
  shape = {.num_experts = sizes.num_experts,
           .hidden = sizes.hidden,
           .intermediate = sizes.intermediate,
           .gated = gated,
           .encoding = formats::kFp8Block128,
           .scale_format = scale_format};
  shape.encoding.scale = scale_format;
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown}) {
    Bytes& codes = layer.tensors[part];
    codes = random_bytes(sizes.num_experts * part_bytes(shape, part), random);
    for (std::byte& code : codes) code &= std::byte{0xF7};  // no NaN
  }
  for (const LayerPart part : {LayerPart::kGateUpScales, LayerPart::kDownScales}) {
    Bytes& scales = layer.tensors[part];
    scales = random_bytes(sizes.num_experts * part_bytes(shape, part), random);
    std::uniform_real_distribution<float> number(1e-4F, 3e-2F);
    for (std::size_t i = 0; scale_format == Format::kF32 && i + 4 <= scales.size(); i += 4) {
      const float scale = number(random);
      std::memcpy(scales.data() + i, &scale, 4);
    }
  }
  return layer;
}

/// A matrix of an expert in fp32: by the law, out of what was restored, or out of the source.
std::vector<float> numbers(const Layer& layer, std::uint64_t e, Matrix matrix,
                           const Preparer* preparer, const PreparedExpert& expert) {
  const bool down = matrix == Matrix::kDown;
  const std::uint64_t rows = down ? layer.shape.hidden : layer.shape.intermediate;
  const std::uint64_t k = down ? layer.shape.intermediate : layer.shape.hidden;
  Bytes codes, scales;
  for (std::uint64_t row = 0; row < rows; ++row) {
    Bytes one = source_row(layer, e, matrix, row, LayerPart::kGateUp);
    if (preparer != nullptr) preparer->restore_codes(matrix, row, expert, one);
    codes.insert(codes.end(), one.begin(), one.end());
  }
  for (std::uint64_t row = 0; row < rows / 128; ++row) {
    Bytes one = source_row(layer, e, matrix, row, LayerPart::kGateUpScales);
    if (preparer != nullptr) {
      one.resize(k / 128 * 4);
      preparer->restore_scales(matrix, row, expert, one);
    }
    scales.insert(scales.end(), one.begin(), one.end());
  }
  const formats::Encoding encoding =
      preparer != nullptr ? preparer->restored_encoding() : layer.shape.encoding;
  const formats::EncodedMatrix encoded{encoding, rows, k, codes, scales};
  EXPECT_TRUE(formats::check_matrix(encoded).has_value());
  std::vector<float> out(rows * k);
  for (std::uint64_t row = 0; row < rows; ++row) {
    dequantise_row(encoded, row, std::span(out).subspan(row * k, k));
  }
  return out;
}

// Half a step of E4M3 under the new scale: 2^-4 of the number, or half of the least step, 2^-10, of
// a scale that is at most twice amax/448.
TEST(DeepgemmFp8, IsTheSourceWithinHalfAStepUnderPowersOfTwo) {
  std::mt19937 random(12);
  for (const bool gated : {true, false}) {
    const Layer layer = fp8_layer({2, 256, 128}, gated, Format::kF32, random);
    const auto preparer = preparer_of(layer);
    ASSERT_NE(preparer, nullptr);
    const auto tensors = prepared_every_way(*preparer, layer);
    for (std::uint64_t e = 0; e < 2; ++e) {
      const PreparedExpert expert = expert_of(*preparer, tensors, e);
      for (const Matrix matrix : matrices(layer.shape)) {
        const auto want = numbers(layer, e, matrix, nullptr, expert);
        const auto got = numbers(layer, e, matrix, preparer.get(), expert);
        for (std::size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) / 16.0F + 3e-2F / 512.0F);
        }
      }
    }
  }
}

TEST(DeepgemmFp8, LeavesWeightsWhoseScalesAreExponentsAlready) {
  std::mt19937 random(13);
  Layer layer = fp8_layer({2, 256, 128}, true, Format::kE8m0, random);
  for (const LayerPart part : {LayerPart::kGateUpScales, LayerPart::kDownScales}) {
    for (std::byte& scale : layer.tensors[part]) scale &= std::byte{0x7F};
  }
  const auto preparer = preparer_of(layer);
  ASSERT_NE(preparer, nullptr);
  const auto tensors = prepared_every_way(*preparer, layer);
  EXPECT_EQ(tensors[0].bytes, layer.tensors[LayerPart::kGateUp]);
  EXPECT_EQ(tensors[1].bytes, layer.tensors[LayerPart::kDown]);
  const PreparedExpert expert = expert_of(*preparer, tensors, 1);
  for (const Matrix matrix : matrices(layer.shape)) {
    EXPECT_EQ(numbers(layer, 1, matrix, preparer.get(), expert),
              numbers(layer, 1, matrix, nullptr, expert));
  }
}

// The loader widens the E8M0 scales of FP8 blocks to F32 while it reads them.
TEST(DeepgemmFp8, KnowsExponentsThatWereWidened) {
  std::mt19937 random(16);
  Layer layer = fp8_layer({2, 256, 128}, true, Format::kE8m0, random);
  const auto preparer = preparer_of(layer);
  ASSERT_NE(preparer, nullptr);
  const auto want = prepared(*preparer, layer, {});
  ExpertsShape widened = layer.shape;
  widened.encoding.scale = Format::kF32;
  widened.scale_format = Format::kF32;
  widened.scales_are_exponents = true;
  const auto other = make_preparer(Target::kDeepgemm, widened);
  ASSERT_TRUE(other.has_value());
  for (std::size_t tensor_idx = 2; tensor_idx < 4; ++tensor_idx) {
    const bool down = tensor_idx == 3;
    const Bytes& exponents =
        layer.tensors[down ? LayerPart::kDownScales : LayerPart::kGateUpScales];
    std::vector<float> scales;
    for (std::size_t i = 0; i < exponents.size() / 2; ++i) {
      scales.push_back(formats::number_at(Format::kE8m0, exponents, i));
    }
    const auto rows = layout::rows_of(std::as_bytes(std::span(scales)), down ? 1 : 2, down ? 4 : 8);
    ExpertSource source;
    (down ? source.down_scales : source.gate_up_scales) = rows;
    Bytes out((*other)->tensors()[tensor_idx].expert_bytes);
    (*other)->make({.tensor_idx = tensor_idx, .source = source, .scalars = {}}, out);
    EXPECT_TRUE(std::ranges::equal(out, std::span(want[tensor_idx].bytes).first(out.size())));
  }
}

TEST(Deepgemm, RefusesSizesThatItsKernelsDoNotTake) {
  std::mt19937 random(14);
  const Layer mxfp4 = mxfp4_layer({1, 32, 32}, true, false, random);
  const Layer fp8 = fp8_layer({1, 128, 128}, true, Format::kF32, random);
  for (const auto& [layer, bad] : {std::pair(mxfp4, 48), std::pair(fp8, 64)}) {
    for (const std::uint64_t size :
         {std::uint64_t{0}, static_cast<std::uint64_t>(bad), std::uint64_t{1} << 60}) {
      ExpertsShape shape = layer.shape;
      shape.hidden = size;
      const auto wide = make_preparer(Target::kDeepgemm, shape);
      ASSERT_FALSE(wide.has_value()) << size;
      EXPECT_EQ(wide.error().code, Code::kUnsupported);
      shape = layer.shape;
      shape.intermediate = size;
      EXPECT_FALSE(make_preparer(Target::kDeepgemm, shape).has_value()) << size;
    }
  }
}

TEST(Deepgemm, RefusesBlocksOverRowsInTurnAndOtherEncodings) {
  std::mt19937 random(15);
  Layer layer = fp8_layer({1, 128, 128}, true, Format::kF32, random);
  layer.shape.rows_in_turn = true;
  EXPECT_FALSE(make_preparer(Target::kDeepgemm, layer.shape).has_value());
  layer.shape.rows_in_turn = false;
  layer.shape.encoding = formats::kNvfp4;
  const auto made = make_preparer(Target::kDeepgemm, layer.shape);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace lode::targets
