// Codes and block scales to their lines: the law against panels that test_panels.h writes from the
// picture in panel.h, and every ISA against the law, byte for byte.
#include <gtest/gtest.h>

#include <numeric>

#include "lode/kernels/test_guarded_bytes.h"
#include "lode/kernels/test_panel_dot.h"

namespace lode::kernels {
namespace {

std::size_t unit_bytes(const PanelShape& shape) { return shape.bits < 8 ? 1 : shape.bits / 8; }

// A source of a tile with its order, one unit out of `step` being the tile's.
struct Stored {
  bool k_first = false;
  std::size_t step = 1;  // rows first: every step-th row; k first: every step-th unit
};

std::size_t source_bytes(const PanelShape& shape, const Stored& stored, std::size_t rows,
                         std::size_t k) {
  const std::size_t row_bytes = (k * shape.bits + 7) / 8, unit = unit_bytes(shape);
  if (!stored.k_first) return (rows - 1) * stored.step * row_bytes + row_bytes;
  return (row_bytes / unit - 1) * rows * stored.step * unit + ((rows - 1) * stored.step + 1) * unit;
}

CodeTile tile_of(const PanelShape& shape, const Stored& stored, std::size_t rows, std::size_t k) {
  const std::size_t unit = unit_bytes(shape);
  CodeTile tile;
  tile.shape = shape;
  tile.num_rows = rows;
  tile.k = k;
  tile.outer_stride_bytes = stored.step * (stored.k_first ? rows * unit : (k * shape.bits + 7) / 8);
  tile.inner_step_bytes = stored.step * unit;
  tile.panel_stride_bytes = 2 * shape.panel_bytes(k);  // as those of a pair lie
  return tile;
}

void fill(std::byte* bytes, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (std::size_t at = 0; at < count; at += 4) {
    const auto word = static_cast<std::uint32_t>(random());
    std::memcpy(bytes + at, &word, count - at < 4 ? count - at : 4);
  }
}

// What a table makes of a tile whose panels begin `shift` bytes behind a line and were not zero.
std::vector<std::byte> made(const KernelTable& table, CodeTile tile, const Stored& stored,
                            std::size_t shift) {
  const std::size_t bytes = tile.num_panels() * tile.panel_stride_bytes;
  Lines lines(bytes + kLineBytes);
  std::memset(lines.data(), 0xEE, bytes + kLineBytes);
  tile.panels = lines.data() + shift;
  stored.k_first ? table.units_to_lines(tile) : table.rows_to_lines(tile);
  return {lines.data(), lines.data() + bytes + kLineBytes};
}

class RelayoutOfIsa : public testing::TestWithParam<std::size_t> {
 protected:
  const KernelTable& scalar() const { return available().front(); }
  const KernelTable& isa() const { return available()[GetParam()]; }

  void compare(const PanelShape& shape, const Stored& stored, std::size_t rows, std::size_t k) {
    GuardedBytes source(source_bytes(shape, stored, rows, k));
    fill(source.data(), source.size(), static_cast<std::uint32_t>(rows * 1000 + k));
    CodeTile tile = tile_of(shape, stored, rows, k);
    tile.source = source.data();
    for (const std::size_t shift : {0U, 16U}) {
      ASSERT_EQ(made(isa(), tile, stored, shift), made(scalar(), tile, stored, shift))
          << "bits " << shape.bits << " rows " << rows << " k " << k << " step " << stored.step;
    }
  }
};

constexpr std::size_t kRowCounts[] = {1, 15, 16, 17, 33, 48, 50, 64, 65, 130};
constexpr std::size_t kTileLengths[] = {1, 8, 15, 31, 37, 64, 96, 128, 129, 136, 144, 255, 512};

TEST_P(RelayoutOfIsa, EqualsScalarRowsFirst) {
  for (const PanelKind kind : kAllKinds) {
    for (const std::size_t rows : kRowCounts) {
      for (const std::size_t k : kTileLengths) compare(shape_of(kind), {false, 1 + k % 2}, rows, k);
    }
    compare(shape_of(kind), {false, 1}, 32, 2880);
  }
}

TEST_P(RelayoutOfIsa, EqualsScalarKFirst) {
  for (const std::size_t step : {1U, 2U, 3U}) {
    for (const PanelKind kind : kAllKinds) {
      for (const std::size_t k : kTileLengths) {
        compare(shape_of(kind), {true, step}, kRowCounts[(k + step) % 10], k);
      }
      for (const std::size_t rows : kRowCounts) compare(shape_of(kind), {true, step}, rows, 144);
    }
  }
}

ScaleTile scales_of(const PanelShape& shape, const Stored& stored, std::size_t rows,
                    std::size_t k) {
  ScaleTile tile;
  tile.shape = shape;
  tile.num_rows = rows;
  tile.k = k;
  tile.row_step_bytes = stored.step * (stored.k_first ? 1 : shape.groups(k));
  tile.group_step_bytes = stored.k_first ? rows * stored.step : 1;
  tile.panel_stride_bytes = shape.panel_bytes(k);
  return tile;
}

void compare_scales(const KernelTable& isa, const PanelShape& shape, const Stored& stored,
                    std::size_t rows, std::size_t k) {
  ScaleTile tile = scales_of(shape, stored, rows, k);
  GuardedBytes source((rows - 1) * tile.row_step_bytes +
                      (shape.groups(k) - 1) * tile.group_step_bytes + 1);
  fill(source.data(), source.size(), static_cast<std::uint32_t>(rows * 1000 + k));
  tile.source = source.data();
  const std::size_t bytes = (rows + 15) / 16 * tile.panel_stride_bytes;
  Lines got(bytes), want(bytes);
  std::memset(got.data(), 0xEE, bytes);
  std::memset(want.data(), 0xEE, bytes);
  tile.panels = want.data();
  const ScaleBytesSeen by_law = available().front().scales_to_lines(tile);
  tile.panels = got.data();
  const ScaleBytesSeen seen = isa.scales_to_lines(tile);
  ASSERT_EQ(std::memcmp(got.data(), want.data(), bytes), 0)
      << "rows " << rows << " k " << k << " step " << stored.step;
  ASSERT_EQ(seen.nan, by_law.nan);
  ASSERT_EQ(seen.negative, by_law.negative);
}

TEST_P(RelayoutOfIsa, EqualsScalarInBlockScales) {
  for (const Stored stored :
       {Stored{false, 1}, Stored{false, 2}, Stored{true, 1}, Stored{true, 2}, Stored{true, 3}}) {
    for (const std::size_t rows : kRowCounts) {
      for (const std::size_t k : kLengths) {
        compare_scales(isa(), shape_of(PanelKind::kMxfp4), stored, rows, k);
        compare_scales(isa(), shape_of(PanelKind::kNvfp4), stored, rows, k);
      }
    }
  }
}

// One odd scale among ordinary ones, at each place in turn.
TEST_P(RelayoutOfIsa, SeesOneOddScaleWhereverItIs) {
  struct Odd {
    PanelKind kind;
    int code;
    bool nan, negative;
  };
  constexpr std::size_t kRows = 18, k = 272;
  for (const Odd& odd :
       {Odd{PanelKind::kMxfp4, 255, true, false}, Odd{PanelKind::kMxfp4, 254, false, false},
        Odd{PanelKind::kMxfp4, 0x81, false, false}, Odd{PanelKind::kNvfp4, 0x7F, true, false},
        Odd{PanelKind::kNvfp4, 0xFF, true, false}, Odd{PanelKind::kNvfp4, 0x80, false, false},
        Odd{PanelKind::kNvfp4, 0x81, false, true}, Odd{PanelKind::kNvfp4, 0xFE, false, true}}) {
    const PanelShape shape = shape_of(odd.kind);
    for (const bool k_first : {false, true}) {
      ScaleTile tile = scales_of(shape, {k_first, 1}, kRows, k);
      std::vector<std::byte> source(kRows * shape.groups(k), std::byte{0x38});
      Lines lines(2 * tile.panel_stride_bytes);
      tile.source = source.data();
      tile.panels = lines.data();
      for (std::byte& scale : source) {
        scale = static_cast<std::byte>(odd.code);
        const ScaleBytesSeen seen = isa().scales_to_lines(tile);
        scale = std::byte{0x38};
        ASSERT_EQ(seen.nan, odd.nan) << odd.code;
        ASSERT_EQ(seen.negative, odd.negative) << odd.code;
      }
    }
  }
}

std::vector<std::size_t> isas() {
  std::vector<std::size_t> all(available().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, RelayoutOfIsa, testing::ValuesIn(isas()), [](const auto& tested) {
  return std::string(available()[tested.param].isa);
});

// The codes of a matrix as a file has them, rows first or k first.
std::vector<std::byte> file_codes(TestMatrix& matrix, bool k_first) {
  const PanelShape& shape = matrix.shape();
  const std::size_t unit = unit_bytes(shape), units = matrix.k() * shape.bits / 8 / unit;
  std::vector<std::byte> bytes(matrix.rows() * units * unit);
  for (std::size_t row = 0; row < matrix.rows(); ++row) {
    for (std::size_t i = 0; i < units; ++i) {
      std::uint32_t word = matrix.code(row, shape.bits < 8 ? 2 * i : i);
      if (shape.bits < 8) word |= matrix.code(row, 2 * i + 1) << 4;
      const std::size_t at = k_first ? i * matrix.rows() + row : row * units + i;
      std::memcpy(bytes.data() + at * unit, &word, unit);
    }
  }
  return bytes;
}

// Only scales of one byte are this room's: others are taken from the picture.
void put_scales(TestMatrix& matrix, std::byte* panels) {
  const PanelShape& shape = matrix.shape();
  const std::size_t groups = matrix.groups();
  if (shape.scale_bytes == 1) {
    std::vector<std::byte> scales;
    for (std::size_t i = 0; i < matrix.rows() * groups; ++i) {
      scales.push_back(static_cast<std::byte>(matrix.stored_scale(i / groups, i % groups)));
    }
    ScaleTile tile = scales_of(shape, {}, matrix.rows(), matrix.k());
    tile.source = scales.data();
    tile.panels = panels;
    EXPECT_FALSE(available().front().scales_to_lines(tile).nan);
    return;
  }
  for (std::size_t panel = 0; panel < matrix.num_panels(); ++panel) {
    const std::size_t begin = panel * shape.panel_bytes(matrix.k());
    for (std::size_t k = 0; k < matrix.k() && shape.scale_bytes > 0; k += kSuperBlockK) {
      const SuperBlock from = super_block(shape, matrix.panels() + begin, k, matrix.k());
      std::memcpy(panels + (from.scales - matrix.panels()), from.scales,
                  shape.scale_lines(from.k) * kLineBytes);
    }
  }
}

TEST(RelayoutLaw, PutsCodesAndScalesWhereThePictureHasThem) {
  for (const PanelKind kind : kAllKinds) {
    for (const std::size_t k : {32U, 160U, 272U, 640U}) {
      TestMatrix matrix(shape_of(kind), 3, k);
      fill_random(matrix, 7);
      for (const bool k_first : {false, true}) {
        const std::vector<std::byte> codes = file_codes(matrix, k_first);
        CodeTile tile = tile_of(matrix.shape(), {k_first, 1}, matrix.rows(), k);
        tile.source = codes.data();
        tile.panel_stride_bytes = matrix.shape().panel_bytes(k);
        Lines lines(3 * tile.panel_stride_bytes);
        std::memset(lines.data(), 0xEE, 3 * tile.panel_stride_bytes);
        tile.panels = lines.data();
        const KernelTable& law = available().front();
        k_first ? law.units_to_lines(tile) : law.rows_to_lines(tile);
        put_scales(matrix, lines.data());
        ASSERT_EQ(std::memcmp(lines.data(), matrix.panels(), 3 * tile.panel_stride_bytes), 0)
            << name_of(kind) << " k " << k << " k first " << k_first;
      }
    }
  }
}

}  // namespace
}  // namespace lode::kernels
