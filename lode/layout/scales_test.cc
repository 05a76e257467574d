#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lode/layout/scatter.h"
#include "lode/layout/unpack.h"

namespace lode::layout {
namespace {

using formats::Format;

// One row of two groups of NVFP4 with the given second scale.
ScalesSeen nvfp4_with(std::uint8_t scale) {
  const auto layout = *PanelLayout::make(formats::kNvfp4, 1, 32);
  const std::vector<std::byte> bytes = {std::byte{0x38}, std::byte{scale}};
  SourceScales source;
  source.bytes = bytes;
  source.format = Format::kE4m3;
  source.outer_stride_bytes = 2;
  std::vector<std::byte> panels(layout.total_bytes());
  const PanelTile tile{0, 0, 1, 0, 32};
  const ScalesSeen seen = scatter_scales(layout, tile, source, panels);
  const ScalesSeen looked = look_at_scales(layout, tile, source);
  EXPECT_EQ(seen.finite, looked.finite);
  EXPECT_EQ(seen.negative, looked.negative);
  const auto bad = find_bad_scale(layout, tile, source);
  EXPECT_EQ(seen.finite, !bad.has_value());
  EXPECT_EQ(bad ? bad->group : 1U, 1U);
  return seen;
}

TEST(Scales, OfE4m3MayNotBeNan) {
  EXPECT_TRUE(nvfp4_with(0x00));
  EXPECT_TRUE(nvfp4_with(0x7E));
  EXPECT_FALSE(nvfp4_with(0x7F));
  EXPECT_FALSE(nvfp4_with(0xFF));
}

TEST(Scales, ThatAreNegativeAreTakenAndTold) {
  EXPECT_FALSE(nvfp4_with(0x7E).negative);
  EXPECT_FALSE(nvfp4_with(0x80).negative);  // minus zero is zero
  for (const int code : {0x81, 0xB8, 0xFE}) {
    const ScalesSeen seen = nvfp4_with(static_cast<std::uint8_t>(code));
    EXPECT_TRUE(seen.finite);
    EXPECT_TRUE(seen.negative);
  }
}

// BF16: 0xC040 is -3.0, 0xFF80 minus infinity.
TEST(Scales, OfFp8BlocksMayBeNegativeButNotMinusInfinity) {
  const formats::Encoding encoding{Format::kE4m3, Format::kF32, 1, 128, true};
  const auto layout = *PanelLayout::make(encoding, 1, 128);
  std::vector<std::byte> bytes = {std::byte{0x40}, std::byte{0xC0}};
  SourceScales source;
  source.bytes = bytes;
  source.format = Format::kBf16;
  source.outer_stride_bytes = 2;
  std::vector<std::byte> panels(layout.total_bytes()), scales(4);
  const ScalesSeen seen = scatter_scales(layout, {0, 0, 1, 0, 128}, source, panels);
  EXPECT_TRUE(seen.finite);
  EXPECT_TRUE(seen.negative);
  unpack_scales(layout, 0, panels, scales);
  float scale = 0.0F;
  std::memcpy(&scale, scales.data(), sizeof scale);
  EXPECT_EQ(scale, -3.0F);
  bytes = {std::byte{0x80}, std::byte{0xFF}};
  source.bytes = bytes;
  EXPECT_FALSE(scatter_scales(layout, {0, 0, 1, 0, 128}, source, panels));
}

TEST(Scales, OfE8m0MayNotBeNan) {
  const auto layout = *PanelLayout::make(formats::kMxfp4, 2, 160);
  std::vector<std::byte> bytes(10, std::byte{127});
  SourceScales source;
  source.bytes = bytes;
  source.format = Format::kE8m0;
  source.outer_stride_bytes = 5;
  std::vector<std::byte> panels(layout.total_bytes());
  const PanelTile tile{0, 0, 2, 0, 160};
  EXPECT_TRUE(scatter_scales(layout, tile, source, panels));
  bytes[9] = std::byte{255};
  EXPECT_FALSE(scatter_scales(layout, tile, source, panels));
  const auto bad = find_bad_scale(layout, tile, source);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->row, 1U);
  EXPECT_EQ(bad->group, 4U);
}

// Rows of an interleaved gate (even rows of the stored matrix): with blocks of 4 stored rows, rows
// 0 and 1 of gate share block 0, row 2 begins block 1. BF16 3.0 is 0x4040, 1.0 is 0x3F80.
TEST(Scales, FollowTheRowsOfAnInterleavedMatrix) {
  const formats::Encoding encoding{Format::kE4m3, Format::kF32, 4, 128, true};
  const auto layout = *PanelLayout::make(encoding, 4, 128);
  const std::vector<std::byte> bytes = {std::byte{0x40}, std::byte{0x40}, std::byte{0x80},
                                        std::byte{0x3F}};
  SourceScales source;
  source.bytes = bytes;
  source.format = Format::kBf16;
  source.outer_stride_bytes = 2;
  source.row_step = 2;
  std::vector<std::byte> panels(layout.total_bytes()), scales(16);
  ASSERT_TRUE(scatter_scales(layout, {0, 0, 4, 0, 128}, source, panels));
  unpack_scales(layout, 0, panels, scales);
  std::vector<float> values(4);
  std::memcpy(values.data(), scales.data(), 16);
  EXPECT_EQ(values, (std::vector<float>{3.0F, 3.0F, 1.0F, 1.0F}));
}

// Stored [columns, rows]: the scale of row r and group g at g * 6 + r * 2.
TEST(Scales, OfTransposedMatricesAreTurnedRound) {
  const auto layout = *PanelLayout::make(formats::kNvfp4, 3, 32);
  std::vector<std::byte> bytes(12);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  SourceScales source;
  source.bytes = bytes;
  source.format = Format::kE4m3;
  source.k_first = true;
  source.outer_stride_bytes = 6;
  source.inner_step_bytes = 2;
  std::vector<std::byte> panels(layout.total_bytes()), scales(6);
  ASSERT_TRUE(scatter_scales(layout, {0, 0, 3, 0, 32}, source, panels));
  unpack_scales(layout, 0, panels, scales);
  const std::vector<int> want = {0, 6, 2, 8, 4, 10};
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(scales[i]), want[i]);
  }
}

}  // namespace
}  // namespace lode::layout
