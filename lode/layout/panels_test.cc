#include "lode/layout/panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/layout/expert_record.h"
#include "lode/layout/scatter.h"
#include "lode/layout/unpack.h"

namespace lode::layout {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  formats::Encoding encoding;
  std::uint64_t rows;
  std::uint64_t k;
};

Bytes random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One matrix in the file's order and what it must become.
struct Stored {
  Bytes codes;   // rows first
  Bytes scales;  // rows first, as `format`
  std::uint64_t row_bytes = 0;
  std::uint64_t scale_columns = 0;
  formats::Format format{};
};

Stored make_stored(const Case& test, std::uint32_t seed) {
  Stored stored;
  stored.row_bytes = formats::row_bytes(test.encoding, test.k);
  stored.codes = random_bytes(test.rows * stored.row_bytes, seed);
  stored.format = test.encoding.scale;
  stored.scale_columns = formats::scale_columns(test.encoding, test.k);
  const std::uint64_t count = formats::scale_rows(test.encoding, test.rows) * stored.scale_columns;
  if (stored.format != formats::Format::kF32) {
    stored.scales = random_bytes(count, seed + 1);
    for (std::byte& scale : stored.scales) scale &= std::byte{0x7E};  // no NaN, none negative
    return stored;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const float scale = 0.25F + static_cast<float>(i);
    stored.scales.insert(stored.scales.end(), sizeof scale, std::byte{});
    std::memcpy(stored.scales.data() + i * sizeof scale, &scale, sizeof scale);
  }
  return stored;
}

SourceScales scales_of(const Stored& stored) {
  SourceScales source;
  source.bytes = stored.scales;
  source.format = stored.format;
  source.outer_stride_bytes = stored.scale_columns * (formats::info(stored.format).bits / 8);
  return source;
}

bool is_nan(float value) { return std::isnan(value); }

// The same codes with k outermost; pairs of E2M1 stay in their byte.
Bytes transposed(const Case& test, const Stored& stored) {
  const std::uint64_t unit =
      std::max<std::uint64_t>(1, formats::info(test.encoding.element).bits / 8);
  const std::uint64_t units = stored.row_bytes / unit;
  Bytes out(stored.codes.size());
  for (std::uint64_t row = 0; row < test.rows; ++row) {
    for (std::uint64_t u = 0; u < units; ++u) {
      std::memcpy(out.data() + (u * test.rows + row) * unit,
                  stored.codes.data() + row * stored.row_bytes + u * unit, unit);
    }
  }
  return out;
}

// Every tile of `rows` x `k` of the matrix, whose size divides nothing in particular.
std::vector<PanelTile> tiles_of(const Case& test, std::uint64_t rows, std::uint64_t k) {
  std::vector<PanelTile> tiles;
  for (std::uint64_t r = 0; r < test.rows; r += rows) {
    for (std::uint64_t c = 0; c < test.k; c += k) {
      tiles.push_back({0, r, std::min(r + rows, test.rows), c, std::min(c + k, test.k)});
    }
  }
  return tiles;
}

Bytes packed_rows_first(const PanelLayout& layout, const Case& test, const Stored& stored) {
  Bytes panels(layout.total_bytes());
  for (const PanelTile& tile : tiles_of(test, 32, 256)) {
    const std::uint64_t first =
        tile.row_begin * stored.row_bytes + tile.k_begin * layout.shape().bits / 8;
    const SourceCodes codes{std::span(stored.codes).subspan(first), false, stored.row_bytes, 0};
    scatter_codes(layout, tile, codes, panels);
    if (test.encoding.has_scale) {
      EXPECT_TRUE(scatter_scales(layout, tile, scales_of(stored), panels));
    }
  }
  return panels;
}

Bytes packed_k_first(const PanelLayout& layout, const Case& test, const Stored& stored) {
  const Bytes codes = transposed(test, stored);
  const std::uint64_t unit = std::max<std::uint64_t>(1, layout.shape().bits / 8);
  const std::uint64_t codes_per_unit = unit * 8 / layout.shape().bits;
  Bytes panels(layout.total_bytes());
  for (const PanelTile& tile : tiles_of(test, 48, 128)) {
    const std::uint64_t first =
        tile.k_begin / codes_per_unit * test.rows * unit + tile.row_begin * unit;
    scatter_codes(layout, tile, {std::span(codes).subspan(first), true, test.rows * unit, unit},
                  panels);
    if (test.encoding.has_scale) {
      EXPECT_TRUE(scatter_scales(layout, tile, scales_of(stored), panels));
    }
  }
  return panels;
}

class Panels : public testing::TestWithParam<Case> {
 protected:
  PanelLayout layout() const {
    return *PanelLayout::make(GetParam().encoding, GetParam().rows, GetParam().k);
  }
};

TEST_P(Panels, UnpackingGivesBackTheCodesThatWerePacked) {
  const Stored stored = make_stored(GetParam(), 1);
  const Bytes panels = packed_rows_first(layout(), GetParam(), stored);
  Bytes codes(stored.codes.size());
  unpack_codes(layout(), 0, panels, codes);
  EXPECT_EQ(codes, stored.codes);
}

TEST_P(Panels, TransposedStorageGivesTheSamePanels) {
  const Stored stored = make_stored(GetParam(), 2);
  EXPECT_EQ(packed_k_first(layout(), GetParam(), stored),
            packed_rows_first(layout(), GetParam(), stored));
}

TEST_P(Panels, EveryCodeLiesWhereTheFunctionSays) {
  const Stored stored = make_stored(GetParam(), 3);
  const Bytes panels = packed_rows_first(layout(), GetParam(), stored);
  const std::uint64_t bits = layout().shape().bits;
  for (std::uint64_t row = 0; row < GetParam().rows; ++row) {
    for (std::uint64_t k = 0; k < GetParam().k; ++k) {
      const CodePlace place = layout().code(0, row, k);
      ASSERT_EQ(place.shift_bits, bits < 8 && k % 2 == 1 ? 4 : 0);
      const std::byte want = stored.codes[row * stored.row_bytes + k * bits / 8];
      ASSERT_EQ(panels[place.offset_bytes], want) << "row " << row << " k " << k;
    }
  }
}

TEST_P(Panels, DecodedRowsEqualTheLawOfTheFormats) {
  const Case& test = GetParam();
  const Stored stored = make_stored(test, 4);
  Bytes panels = packed_rows_first(layout(), test, stored);
  formats::EncodedMatrix matrix{test.encoding, test.rows, test.k, stored.codes, stored.scales};
  if (layout().has_matrix_scales()) {
    matrix.tensor_scale = 0.375F;
    std::memcpy(panels.data() + layout().matrix_scale_offset(0), &matrix.tensor_scale, 4);
  }
  ASSERT_TRUE(formats::check_matrix(matrix));
  std::vector<float> want(test.k), got(test.k);
  for (std::uint64_t row = 0; row < test.rows; ++row) {
    formats::dequantise_row(matrix, row, want);
    decode_panel_row(layout(), 0, panels, row, got);
    std::replace_if(want.begin(), want.end(), is_nan, 0.0F);  // NaN: the bits may differ
    std::replace_if(got.begin(), got.end(), is_nan, 0.0F);
    ASSERT_EQ(0, std::memcmp(want.data(), got.data(), test.k * 4)) << "row " << row;
  }
}

// Counted from the picture in kernels/panel.h: what is no code and no scale is zero.
TEST_P(Panels, PaddingIsZeroAndCounted) {
  Stored stored = make_stored(GetParam(), 5);
  std::fill(stored.codes.begin(), stored.codes.end(), std::byte{0xFF});
  std::uint64_t nonzero = 0;
  for (const std::byte byte : packed_rows_first(layout(), GetParam(), stored)) {
    nonzero += byte != std::byte{} ? 1 : 0;
  }
  EXPECT_LE(nonzero, layout().used_bytes());
  EXPECT_GE(nonzero, stored.codes.size());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Panels,
    testing::Values(Case{formats::kPlainF32, 5, 7}, Case{formats::kPlainF16, 17, 129},
                    Case{formats::kPlainBf16, 1, 1}, Case{formats::kPlainBf16, 40, 331},
                    Case{formats::kPlainBf16, 96, 128}, Case{formats::kMxfp4, 16, 128},
                    Case{formats::kMxfp4, 33, 416}, Case{formats::kMxfp4, 2, 32},
                    Case{formats::kNvfp4, 50, 144}, Case{formats::kNvfp4, 64, 2880},
                    Case{formats::kNvfp4Divisor, 20, 272}, Case{formats::kFp8Block128, 300, 400},
                    Case{formats::kFp8Block128, 136, 144}, Case{formats::kFp8Channel, 33, 130},
                    Case{formats::kFp8Tensor, 18, 257},
                    Case{{formats::Format::kE4m3, formats::Format::kF32, 1, 32, true}, 19, 96},
                    Case{{formats::Format::kE4m3, formats::Format::kF32, 1, 256, true}, 19, 600}));

// Super-block of MXFP4: 16 code lines and 1 scale line; the second of two panels of 256 k begins at
// 2 * 17 * 64. Row 18, k 130: line 0 of super-block 1, lane 2, low nibble of its second byte.
TEST(PanelLayout, PlacesOneCodeAsDrawn) {
  const auto layout = PanelLayout::make(formats::kMxfp4, 32, 256);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->panel_bytes(), 2 * 17 * 64U);
  EXPECT_EQ(layout->code(0, 18, 130), (CodePlace{2 * 17 * 64 + 17 * 64 + 2 * 4 + 1, 0}));
  EXPECT_EQ(layout->code(0, 18, 131), (CodePlace{2 * 17 * 64 + 17 * 64 + 2 * 4 + 1, 4}));
  EXPECT_EQ(layout->scale_offset(0, 18, 5), 2 * 17 * 64 + 17 * 64 + 16 * 64 + 16 + 2U);
}

TEST(PanelLayout, PutsUpPanelsBehindTheirGatePanels) {
  const auto layout = PanelLayout::make(formats::kNvfp4, 40, 128, 2);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->panel_bytes(), 18 * 64U);
  EXPECT_EQ(layout->panel_offset(1, 0), 18 * 64U);
  EXPECT_EQ(layout->panel_offset(0, 2), 4 * 18 * 64U);
  EXPECT_EQ(layout->matrix_scale_offset(1), 6 * 18 * 64 + 4U);
  EXPECT_EQ(layout->total_bytes(), 6 * 18 * 64 + 64U);
}

TEST(PanelLayout, HoldsNoEncodingThatNoKernelReads) {
  EXPECT_FALSE(PanelLayout::make({.element = formats::Format::kE5m2}, 16, 16));
  EXPECT_FALSE(PanelLayout::make({.element = formats::Format::kI64}, 16, 16));
  EXPECT_FALSE(PanelLayout::make(formats::kPlainBf16, std::uint64_t{1} << 60, 1));
  EXPECT_FALSE(PanelLayout::make(formats::kPlainBf16, 0, 16));
}

TEST(ExpertRecord, BeginsEveryPartOnALineAndEndsOnAPage) {
  const auto record = make_expert_record(96, 40, formats::kMxfp4, formats::kMxfp4, true);
  ASSERT_TRUE(record);
  // gate and up: 3 panels each of 96 k = 12 code lines + 1 scale line; down: 6 panels of 40 k =
  // 5 lines + 1. Biases of 40, 40 and 96 floats: 3, 3 and 6 lines.
  EXPECT_EQ(record->gate_up_bytes, 6 * 13 * 64U);
  EXPECT_EQ(record->down_offset_bytes, 6 * 13 * 64U);
  EXPECT_EQ(record->down_bytes, 6 * 6 * 64U);
  EXPECT_EQ(record->gate_bias_offset_bytes, (78 + 36) * 64U);
  EXPECT_EQ(record->up_bias_offset_bytes, (78 + 36 + 3) * 64U);
  EXPECT_EQ(record->down_bias_offset_bytes, (78 + 36 + 6) * 64U);
  EXPECT_EQ(record->record_bytes, 8192U);  // (78 + 36 + 12) * 64 = 8064, up to 4096
}

TEST(ExpertRecord, HoldsItsFirstMatrixAloneWhereItIsNotGated) {
  const auto record = make_expert_record(96, 40, formats::kMxfp4, formats::kMxfp4, true, false);
  ASSERT_TRUE(record);
  // 3 panels of 13 lines; down as above: 36 lines. Biases of 40 and 96 floats: 3 and 6 lines.
  EXPECT_EQ(record->gate_up_bytes, 3 * 13 * 64U);
  EXPECT_EQ(record->gate_bias_offset_bytes, (39 + 36) * 64U);
  EXPECT_EQ(record->down_bias_offset_bytes, (39 + 36 + 3) * 64U);
  EXPECT_EQ(record->record_bytes, 8192U);  // (75 + 9) * 64 = 5376, up to 4096
  EXPECT_EQ(record->padding_bytes,
            8192U - (40 * 96 / 2 + 40 * 3) - (96 * 40 / 2 + 96 * 2) - (40 + 96) * 4U);
  const std::vector<std::byte> bytes(record->record_bytes);
  const ExpertViews views = expert_views(*record, bytes);
  EXPECT_EQ(views.gate_up.meta().layout, tensor::Layout::kPanels);
  EXPECT_TRUE(views.up_bias.bytes().empty());
  EXPECT_EQ(views.gate_bias.bytes().size(), 40 * 4U);
}

}  // namespace
}  // namespace lode::layout
