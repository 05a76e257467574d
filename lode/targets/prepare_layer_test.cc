#include "lode/targets/prepare_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "lode/base/fmt.h"

namespace lode::targets {
namespace {

using formats::Format;
using ::testing::HasSubstr;

constexpr std::byte kPadding{0};

// Rows of up before those of gate, each half one row longer than its matrix; scales as they are.
// What is wanted is computed below, from the tensors, with no preparer.
class SwapPreparer : public Preparer {
 public:
  SwapPreparer(const ExpertsShape& shape, std::uint64_t padding_rows) : order_{2, 0} {
    order_.half_rows = shape.intermediate + padding_rows;
    order_.order = layout::GateUpOrder::kUpThenGate;
    const std::uint64_t rows = order_.rows();
    const std::uint64_t row_bytes = shape.hidden / 2;
    tensors_.push_back({"w13",
                        Format::kU8,
                        {shape.num_experts, rows, row_bytes},
                        rows * row_bytes,
                        row_bytes,
                        2 * padding_rows * row_bytes,
                        {.gate_up = true}});
    const std::uint64_t down_row = shape.intermediate / 2;
    tensors_.push_back({"w2",
                        Format::kU8,
                        {shape.num_experts, shape.hidden, down_row},
                        shape.hidden * down_row,
                        down_row,
                        0,
                        {.down = true}});
    tensors_.push_back(
        {"largest", Format::kF32, {shape.num_experts}, 4, 4, 0, {.gate_up_scales = true}});
  }
  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  bool wants_largest_block_scales() const noexcept override { return true; }
  void make(const MakeRequest& request, std::span<std::byte> out) const noexcept override {
    const auto& [tensor_idx, expert_idx, first_unit, source, scalars, kept] = request;
    if (tensor_idx == 2) {
      std::memcpy(out.data(), &scalars.largest_gate_up_block_scale, out.size());
      return;
    }
    const std::uint64_t unit_bytes = tensors_[tensor_idx].unit_bytes;
    for (std::uint64_t unit = 0; unit < out.size() / unit_bytes; ++unit) {
      const auto place = out.subspan(unit * unit_bytes, unit_bytes);
      const std::uint64_t row = first_unit + unit;
      const auto from =
          tensor_idx == 0 ? source.gate_up.row(order_.at(row)) : source.down.row({0, row});
      std::ranges::fill(place, kPadding);
      std::ranges::copy(from, place.begin());
    }
  }
  formats::Encoding restored_encoding() const noexcept override { return formats::kNvfp4; }
  void restore_codes(Matrix, std::uint64_t, const PreparedExpert&,
                     std::span<std::byte>) const noexcept override {}
  void restore_scales(Matrix, std::uint64_t, const PreparedExpert&,
                      std::span<std::byte>) const noexcept override {}
  float restore_scale(Matrix, const PreparedExpert&) const noexcept override { return 1.0F; }
  float restore_bias(Matrix, std::uint64_t, const PreparedExpert&) const noexcept override {
    return 0.0F;
  }

 private:
  layout::RowOrder order_;
  std::vector<EngineTensor> tensors_;
};

ExpertsShape nvfp4_layer() {
  ExpertsShape shape;
  shape.num_experts = 3;
  shape.hidden = 32;
  shape.intermediate = 48;
  shape.encoding = formats::kNvfp4;
  shape.scale_format = Format::kE4m3;
  return shape;
}

LayerTensors random_layer(const ExpertsShape& shape) {
  LayerTensors tensors;
  std::mt19937 random(7);
  for (const LayerPart part : {LayerPart::kGateUp, LayerPart::kDown, LayerPart::kGateUpScales}) {
    tensors[part].resize(shape.num_experts * part_bytes(shape, part));
    for (std::byte& byte : tensors[part]) byte = static_cast<std::byte>(random() & 0x7FU);
  }
  return tensors;
}

// Gate's and up's rows in turn where the shape says so.
std::vector<std::byte> swapped(const ExpertsShape& shape, const std::vector<std::byte>& w13,
                               std::uint64_t padding_rows) {
  const std::uint64_t row_bytes = shape.hidden / 2;
  std::vector<std::byte> out;
  for (std::uint64_t expert = 0; expert < shape.num_experts; ++expert) {
    for (const std::uint64_t half : {1U, 0U}) {
      for (std::uint64_t row = 0; row < shape.intermediate; ++row) {
        const std::uint64_t stored =
            shape.rows_in_turn ? 2 * row + half : half * shape.intermediate + row;
        const auto from = w13.begin() + static_cast<std::ptrdiff_t>(
                                            (expert * 2 * shape.intermediate + stored) * row_bytes);
        out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(row_bytes));
      }
      out.insert(out.end(), padding_rows * row_bytes, kPadding);
    }
  }
  return out;
}

TEST(PrepareLayer, GivesTheSameBytesInEveryWayByAnyThreadsAndChunks) {
  for (const bool in_turn : {false, true}) {
    for (const std::uint64_t padding_rows : {0U, 1U}) {
      ExpertsShape shape = nvfp4_layer();
      shape.rows_in_turn = in_turn;
      const LayerTensors tensors = random_layer(shape);
      const auto wanted = swapped(shape, tensors[LayerPart::kGateUp], padding_rows);
      const SwapPreparer preparer(shape, padding_rows);
      for (const LayerRun& run :
           {LayerRun{}, LayerRun{Way::kInPlace, 1}, LayerRun{Way::kInPlace, 3},
            LayerRun{Way::kStreamed, 1, 1}, LayerRun{Way::kStreamed, 4, 2}}) {
        const auto made = prepare_layer(preparer, shape, tensors, {}, run);
        ASSERT_TRUE(made) << to_string(made.error());
        SCOPED_TRACE(fmt::format("{} by {}", name(run.way), run.num_threads));
        EXPECT_EQ((*made)[0].bytes, wanted);
        EXPECT_EQ((*made)[1].bytes, tensors[LayerPart::kDown]);
      }
    }
  }
}

TEST(PrepareLayer, FindsTheLargestBlockScaleAndNaNIsNotIt) {
  const ExpertsShape shape = nvfp4_layer();
  LayerTensors tensors = random_layer(shape);
  std::ranges::fill(tensors[LayerPart::kGateUpScales], std::byte{0x38});  // 1.0
  tensors[LayerPart::kGateUpScales][5] = std::byte{0x7F};                 // NaN
  tensors[LayerPart::kGateUpScales][7] = std::byte{0x40};                 // 2.0
  tensors[LayerPart::kGateUpScales][9] = std::byte{0xF8};                 // -256
  const auto made = prepare_layer(SwapPreparer(shape, 0), shape, tensors, {}, {});
  ASSERT_TRUE(made);
  float largest = 0;
  std::memcpy(&largest, (*made)[2].bytes.data(), sizeof largest);
  EXPECT_EQ(largest, 2.0F);
}

TEST(PrepareLayer, RefusesAPartThatIsNotAsLargeAsTheShapeSays) {
  const ExpertsShape shape = nvfp4_layer();
  LayerTensors tensors = random_layer(shape);
  tensors[LayerPart::kDown].pop_back();
  const auto made = prepare_layer(SwapPreparer(shape, 0), shape, tensors, {}, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kInvalidSource);
  EXPECT_THAT(to_string(made.error()), HasSubstr("down: want 2304 bytes for w2, found 2303"));
}

// Sizes of a manifest, "hidden_out": 257, once stopped the program.
TEST(PrepareLayer, RefusesSizesThatLeaveAPartOfAByte) {
  ExpertsShape shape = nvfp4_layer();
  const LayerTensors tensors = random_layer(shape);
  const SwapPreparer preparer(shape, 0);
  shape.num_experts = 2;  // as the tensors, but not as the preparer has it
  const auto made = prepare_layer(preparer, shape, tensors, {}, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
  EXPECT_THAT(to_string(made.error()), HasSubstr("tensor w13: want sizes that fill [3, 96, 16]"));
}

}  // namespace
}  // namespace lode::targets
