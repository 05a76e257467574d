#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/targets/target.h"

// What each target's layout loses of numbers that were chosen for it, counted by hand.

namespace lode::targets {
namespace {

using formats::Format;

constexpr std::uint64_t kHidden = 256;
constexpr std::uint64_t kIntermediate = 128;

/// One expert whose numbers are all alike until a test puts others in their places.
class Expert {
 public:
  Expert(const formats::Encoding& encoding, Format scale_format,
         std::byte scale = std::byte{0x38}) {
    shape_ = {.num_experts = 1,
              .hidden = kHidden,
              .intermediate = kIntermediate,
              .encoding = encoding,
              .scale_format = scale_format};
    scalars_.gate_scale = scalars_.up_scale = scalars_.down_scale = {1.0F};
    scalars_.gate_input_scale = scalars_.up_input_scale = scalars_.down_input_scale = {1.0F};
    scalars_.largest_gate_up_block_scale = scalars_.largest_down_block_scale = 448.0F;
    codes_.assign(2 * kIntermediate * formats::row_bytes(encoding, kHidden), std::byte{0x38});
    scale_bytes_ = formats::info(scale_format).bits / 8;
    const std::uint64_t scales = encoding.block_rows == formats::kWhole
                                     ? 0
                                     : 2 * formats::scale_rows(encoding, kIntermediate) *
                                           formats::scale_columns(encoding, kHidden);
    gate_up_scales_.assign(scales * scale_bytes_, scale);
    down_scales_.assign(scales * scale_bytes_, scale);  // H * I is I * H
    if (scale_bytes_ == 4) {
      for (std::uint64_t i = 0; i < scales; ++i) put_scale(i, 1.0F);
    }
  }

  void use_f16() { shape_.model_format = Format::kF16; }
  void quantise_activations() { options_.fp8_activations = true; }
  /// Of gate, unless `up`.
  void put_codes(std::initializer_list<int> codes, bool up = false) {
    put(codes_, codes, up ? codes_.size() / 2 : 0);
  }
  void put_scales(std::initializer_list<int> scales, bool up = false) {
    put(gate_up_scales_, scales, up ? gate_up_scales_.size() / 2 : 0);
  }
  void put_scale(std::uint64_t idx, float scale) {
    std::memcpy(gate_up_scales_.data() + idx * sizeof scale, &scale, sizeof scale);
    if (idx * sizeof scale < down_scales_.size() && scale == 1.0F) {
      std::memcpy(down_scales_.data() + idx * sizeof scale, &scale, sizeof scale);
    }
  }
  void put_down_scales(std::initializer_list<int> scales) { put(down_scales_, scales, 0); }
  LayerScalars& scalars() { return scalars_; }
  ExpertsShape& shape() { return shape_; }

  /// Everything that the target loses; and that what says it loses nothing does not.
  LossCounts lost_by(Target target) {
    const auto preparer = make_preparer(target, shape_, options_);
    EXPECT_TRUE(preparer) << to_string(preparer.error());
    LossCounts all;
    for (std::size_t i = 0; i < (*preparer)->tensors().size(); ++i) {
      LossCounts counts;
      (*preparer)->count_losses({i, 0, source(), scalars_}, counts);
      EXPECT_TRUE((*preparer)->may_lose(i) || !counts.any()) << (*preparer)->tensors()[i].name;
      all += counts;
    }
    return all;
  }

 private:
  static void put(std::vector<std::byte>& to, std::initializer_list<int> bytes, std::size_t at) {
    for (const int byte : bytes) to[at++] = static_cast<std::byte>(byte);
  }
  ExpertSource source() const {
    const formats::Encoding& encoding = shape_.encoding;
    ExpertSource source;
    source.gate_up =
        layout::rows_of(codes_, shape_.num_halves(), formats::row_bytes(encoding, kHidden));
    if (gate_up_scales_.empty()) return source;
    source.gate_up_scales =
        layout::rows_of(gate_up_scales_, shape_.num_halves(),
                        formats::scale_columns(encoding, kHidden) * scale_bytes_);
    source.down = layout::rows_of(std::span(codes_).first(codes_.size() / 2), 1,
                                  formats::row_bytes(encoding, kIntermediate));
    source.down_scales = layout::rows_of(
        down_scales_, 1, formats::scale_columns(encoding, kIntermediate) * scale_bytes_);
    return source;
  }

  ExpertsShape shape_;
  Options options_;
  LayerScalars scalars_;
  std::uint64_t scale_bytes_ = 1;
  std::vector<std::byte> codes_;
  std::vector<std::byte> gate_up_scales_;
  std::vector<std::byte> down_scales_;
};

LossCounts only(std::initializer_list<std::pair<Loss, std::uint64_t>> losses) {
  LossCounts counts;
  for (const auto& [loss, count] : losses) counts.add(loss, count);
  return counts;
}

Expert nvfp4() { return {formats::kNvfp4, Format::kE4m3}; }

// 0x38 is 1, 0x7E 448, 0xB8 -1, 0x01 to 0x07 the subnormals, 0x08 2^-6.
TEST(TargetLosses, MarlinFlushesSubnormalScalesBesideALargeOneAndThoseBelowZero) {
  Expert expert = nvfp4();
  expert.put_scales({0x7E, 0x01, 0x07, 0x08, 0x00, 0x80});
  expert.put_scales({0xB8, 0x81, 0x02}, true);
  expert.put_down_scales({0x03});
  EXPECT_EQ(expert.lost_by(Target::kMarlin),
            only({{Loss::kFlushedScales, 4}, {Loss::kNegativeScales, 2}}));
}

TEST(TargetLosses, MarlinKeepsSubnormalScalesWhereTheLargestLeavesRoom) {
  Expert expert = nvfp4();
  expert.put_scales({0x01, 0x07});
  expert.scalars().largest_gate_up_block_scale = 1.0F;
  EXPECT_EQ(expert.lost_by(Target::kMarlin), LossCounts{});
}

// weight_layouts 1.7: F16 flushes the codes 1 to 7 whatever the largest is.
TEST(TargetLosses, MarlinFlushesEverySubnormalScaleForF16Activations) {
  Expert expert = nvfp4();
  expert.use_f16();
  expert.scalars().largest_gate_up_block_scale = 1.0F;
  expert.put_scales({0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08});
  EXPECT_EQ(expert.lost_by(Target::kMarlin), only({{Loss::kFlushedScales, 7}}));
}

// Gate's scales take up a half: 3 * 2^-10 and 15 * 2^-11 are no E4M3 numbers, of 2^-10 nothing is
// left; up keeps its own.
TEST(TargetLosses, MarlinRoundsTheHalfWithTheSmallerScaleAndFlushesWhatBecomesZero) {
  Expert expert = nvfp4();
  expert.scalars().gate_scale = {1.0F};
  expert.scalars().up_scale = {2.0F};
  expert.scalars().largest_gate_up_block_scale = 1.0F;
  expert.put_scales({0x03, 0x01, 0x0F});  // 3 * 2^-9, 2^-9, 15 * 2^-10
  expert.put_scales({0x03, 0x01}, true);
  EXPECT_EQ(expert.lost_by(Target::kMarlin),
            only({{Loss::kRoundedScales, 2}, {Loss::kFlushedScales, 1}}));
}

// weight_layouts 1.8: with FP8 activations 6 is added, and 249 is 255 then, which is no number.
TEST(TargetLosses, MarlinOverflowsTheLargestExponentsForNarrowActivations) {
  Expert expert(formats::kMxfp4, Format::kE8m0, std::byte{127});
  expert.put_scales({248, 249, 250, 254, 0, 1});
  EXPECT_EQ(expert.lost_by(Target::kMarlin), LossCounts{});
  expert.quantise_activations();
  EXPECT_EQ(expert.lost_by(Target::kMarlin), only({{Loss::kOverflowedScales, 3}}));
}

// F16 holds 103 to 142.
TEST(TargetLosses, MarlinLosesExponentsThatF16DoesNotHold) {
  Expert expert(formats::kMxfp8, Format::kE8m0, std::byte{127});
  expert.use_f16();
  expert.put_scales({102, 103, 142});
  expert.put_down_scales({143, 254});
  EXPECT_EQ(expert.lost_by(Target::kMarlin),
            only({{Loss::kFlushedScales, 1}, {Loss::kOverflowedScales, 2}}));
}

// weight_layouts 1.10: infinite from 2^8 on; 0.1 is no BF16 number, and 1e-41 is less than any.
TEST(TargetLosses, MarlinOverflowsFp8ScalesFromTwoToTheEighthOn) {
  Expert expert(formats::kFp8Channel, Format::kF32);
  expert.put_scale(0, 256.0F);
  expert.put_scale(1, 255.0F);
  expert.put_scale(2, 0.1F);
  expert.put_scale(3, 1e-41F);
  EXPECT_EQ(
      expert.lost_by(Target::kMarlin),
      only({{Loss::kOverflowedScales, 1}, {Loss::kNarrowedScales, 1}, {Loss::kFlushedScales, 1}}));
}

TEST(TargetLosses, MarlinCountsScalesOfFp8MatricesOnce) {
  Expert expert(formats::kFp8Tensor, Format::kF32);
  expert.scalars().up_scale = {300.0F};
  expert.scalars().down_scale = {0.1F};
  EXPECT_EQ(expert.lost_by(Target::kMarlin),
            only({{Loss::kOverflowedScales, 1}, {Loss::kNarrowedScales, 1}}));
}

// weight_layouts 2.5: a product above 448 saturates.
TEST(TargetLosses, B12xSaturatesAndRoundsWhatItFolds) {
  Expert expert = nvfp4();
  expert.scalars().gate_scale = {2.0F};
  expert.scalars().up_scale = {0.75F};
  expert.scalars().down_scale = {0.25F};
  expert.put_scales({0x7E, 0xFE, 0x76});             // 448, -448, 224
  expert.put_scales({0x01, 0x3C, 0x7E}, true);       // 1.5 becomes 1.125, 448 336 and so 320
  expert.put_down_scales({0x01, 0x02, 0x03, 0x38});  // a quarter of 2^-9, 2^-8 and 3 * 2^-9
  EXPECT_EQ(
      expert.lost_by(Target::kFlashinferB12x),
      only({{Loss::kSaturatedScales, 2}, {Loss::kFoldedScales, 3}, {Loss::kFlushedScales, 2}}));
}

TEST(TargetLosses, KernelsOfOneScaleRoundTheHalfWithTheSmallerOne) {
  Expert expert = nvfp4();
  for (const Target target :
       {Target::kVllmCutlass, Target::kFlashinferCutlass, Target::kFlashinferTrtllm}) {
    expert.scalars().up_scale = {1.0F};
    expert.put_scales({0x01, 0x03, 0x00});
    EXPECT_EQ(expert.lost_by(target), LossCounts{});
    expert.scalars().up_scale = {2.0F};
    EXPECT_EQ(expert.lost_by(target), only({{Loss::kFlushedScales, 1}, {Loss::kRoundedScales, 1}}));
  }
}

// Codes under a half of their scale: 3 * 2^-9 and 2^-9 are not held, 1 is.
TEST(TargetLosses, NumbersOfFp8AreRoundedToTheLargerScale) {
  Expert expert(formats::kFp8Tensor, Format::kF32);
  expert.put_codes({0x01, 0x03, 0x81, 0x00, 0x80});
  expert.put_codes({0x01, 0x03}, true);
  for (const Target target :
       {Target::kVllmCutlass, Target::kFlashinferCutlass, Target::kFlashinferTrtllm}) {
    expert.scalars().up_scale = {1.0F};
    EXPECT_EQ(expert.lost_by(target), LossCounts{});
    expert.scalars().up_scale = {2.0F};
    EXPECT_EQ(expert.lost_by(target), only({{Loss::kRoundedNumbers, 3}}));
  }
}

// weight_layouts 2.9: at least 1e-10.
TEST(TargetLosses, BlockScalesOfFp8AreRaised) {
  Expert expert(formats::kFp8Block128, Format::kF32);
  expert.put_scale(0, 1e-11F);
  expert.put_scale(1, -1.0F);
  expert.put_scale(2, 0.0F);
  for (const Target target : {Target::kFlashinferCutlass, Target::kFlashinferTrtllm}) {
    EXPECT_EQ(expert.lost_by(target), only({{Loss::kRaisedScales, 1}, {Loss::kNegativeScales, 1}}));
  }
  EXPECT_EQ(expert.lost_by(Target::kVllmCutlass), LossCounts{});
}

// weight_layouts 3.6: a block's largest magnitude is at least 1e-4, so that its scale is 2^-22 or
// more. All codes are 1: of 1e-40 nothing is left, of 1e-5 it is. One block is one scale.
TEST(TargetLosses, DeepgemmFlushesAndRaisesBlocksBelowItsLeast) {
  Expert expert(formats::kFp8Block128, Format::kF32);
  expert.put_scale(0, 1e-40F);
  expert.put_scale(1, 1e-5F);
  expert.put_scale(2, 2e-4F);
  expert.put_scale(3, 0.0F);
  EXPECT_EQ(expert.lost_by(Target::kDeepgemm),
            only({{Loss::kFlushedScales, 1}, {Loss::kRaisedScales, 1}}));
}

// 448 * 1e38 is no number of F32, 3e38 is one; a code that is NaN makes its block so.
TEST(TargetLosses, DeepgemmMakesNanOfBlocksThatOverflow) {
  Expert expert(formats::kFp8Block128, Format::kF32);
  expert.put_scale(0, 3e38F);
  EXPECT_EQ(expert.lost_by(Target::kDeepgemm), LossCounts{});
  expert.put_scale(0, 1e38F);
  expert.put_codes({0x7E});
  EXPECT_EQ(expert.lost_by(Target::kDeepgemm), only({{Loss::kNanBlocks, 1}}));
  expert.put_scale(0, 1.0F);
  expert.put_codes({0x38, 0x38, 0x7F}, true);
  EXPECT_EQ(expert.lost_by(Target::kDeepgemm), only({{Loss::kNanBlocks, 1}}));
}

TEST(TargetLosses, AreNoneWhereBytesAreKept) {
  Expert expert(formats::kMxfp4, Format::kE8m0, std::byte{127});
  expert.put_scales({0, 254, 250});
  for (const Target target :
       {Target::kVllmCutlass, Target::kFlashinferCutlass, Target::kFlashinferTrtllm,
        Target::kFlashinferB12x, Target::kDeepgemm}) {
    EXPECT_EQ(expert.lost_by(target), LossCounts{});
  }
}

}  // namespace
}  // namespace lode::targets
