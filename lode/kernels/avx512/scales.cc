#include "lode/kernels/avx512/relayout.h"
#include "lode/kernels/avx512/relayout_parts.h"
#include "lode/kernels/scalar/relayout.h"

// The law is scalar/relayout.cc. Four scales of each of 16 rows make a line, group by group: the
// dwords of 16 rows are transposed as those of codes are, then the bytes of each line sorted.

namespace lode::kernels::avx512 {
namespace {

constexpr std::size_t kGroupsPerLine = kLineBytes / kPanelRows;

/// Looks at 64 scales at once; bytes that are not there are zero, which is neither.
struct Seen {
  __mmask64 nan = 0;
  __mmask64 negative = 0;

  template <PanelKind kKind>
  LODE_KERNEL_INLINE void look_at(__m512i scales) noexcept {
    const __mmask64 all_ones = _mm512_cmpeq_epi8_mask(scales, _mm512_set1_epi8(-1));
    if constexpr (kKind == PanelKind::kMxfp4) {
      nan |= all_ones;
    } else {
      const __m512i magnitude = _mm512_set1_epi8(0x7F);
      nan |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(scales, magnitude), magnitude);
      negative |=
          _mm512_movepi8_mask(scales) & _mm512_test_epi8_mask(scales, magnitude) & ~all_ones;
    }
  }
};

/// Byte r * 4 + g to byte g * 16 + r.
LODE_KERNEL_INLINE __m512i group_major(__m512i rows) noexcept {
  // Within four rows first, a lane; then each group's four lanes.
  const __m512i in_lane =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(lanes, _mm512_shuffle_epi8(rows, in_lane));
}

/// Where line `line` of a panel's scales goes, counted over all its super-blocks.
template <PanelKind kKind>
LODE_KERNEL_INLINE std::size_t line_offset(const ScaleTile& tile, std::size_t line) noexcept {
  constexpr std::size_t kLinesPerBlock = kKind == PanelKind::kMxfp4 ? 1 : 2;
  const std::size_t block = line / kLinesPerBlock;
  const std::size_t left = tile.k - block * kSuperBlockK;
  const std::size_t here = left < kSuperBlockK ? left : kSuperBlockK;
  return block * tile.shape.super_block_bytes() +
         (tile.shape.code_lines(here) + line % kLinesPerBlock) * kLineBytes;
}

/// Rows first: 64 groups of 16 rows at a time.
template <PanelKind kKind, Stores kStores>
void scales_of_panel(const ScaleTile& tile, std::size_t panel, Seen& seen) noexcept {
  const std::size_t num_groups = tile.shape.groups(tile.k);
  const std::size_t rows_left = tile.num_rows - panel * kPanelRows;
  const std::byte* const from = tile.source + panel * kPanelRows * tile.row_step_bytes;
  std::byte* const to = tile.panels + panel * tile.panel_stride_bytes;
  for (std::size_t at = 0; at < num_groups; at += kLineBytes) {
    const __mmask64 there = first_bytes(num_groups - at);
    __m512i row[16];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      row[i] = i < rows_left ? _mm512_maskz_loadu_epi8(there, from + at + i * tile.row_step_bytes)
                             : _mm512_setzero_si512();
      seen.look_at<kKind>(row[i]);
      ask_for(from + at + (kPanelRows + i) * tile.row_step_bytes);
    }
    transpose(row);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      if (at + i * kGroupsPerLine >= num_groups) break;
      put<kStores>(to + line_offset<kKind>(tile, at / kGroupsPerLine + i), group_major(row[i]));
    }
  }
}

/// K first: a group of 16 rows at a time, kStep bytes between rows.
template <PanelKind kKind, std::size_t kStep>
void groups_of_panel(const ScaleTile& tile, std::size_t panel, Seen& seen) noexcept {
  const std::size_t num_groups = tile.shape.groups(tile.k);
  const std::size_t rows_left = tile.num_rows - panel * kPanelRows;
  const UnitLoader<1, kStep> loader(rows_left < kPanelRows ? rows_left : kPanelRows);
  const std::byte* from = tile.source + panel * kPanelRows * kStep;
  std::byte* const to = tile.panels + panel * tile.panel_stride_bytes;
  for (std::size_t group = 0; group < num_groups; group += kGroupsPerLine) {
    std::byte* const line = to + line_offset<kKind>(tile, group / kGroupsPerLine);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kGroupsPerLine; ++i) {
      __m512i scales = _mm512_setzero_si512();
      if (group + i < num_groups) {
        scales = loader.load(from);
        from += tile.group_step_bytes;
      }
      seen.look_at<kKind>(scales);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(line + i * kPanelRows),
                       _mm512_castsi512_si128(scales));
    }
  }
}

template <PanelKind kKind>
ScaleBytesSeen scales_of(const ScaleTile& tile) noexcept {
  Seen seen;
  const bool streaming = on_lines(tile);
  for (std::size_t panel = 0; panel * kPanelRows < tile.num_rows; ++panel) {
    if (tile.group_step_bytes != 1) {
      tile.row_step_bytes == 1 ? groups_of_panel<kKind, 1>(tile, panel, seen)
                               : groups_of_panel<kKind, 2>(tile, panel, seen);
    } else if (streaming) {
      scales_of_panel<kKind, Stores::kStreaming>(tile, panel, seen);
    } else {
      scales_of_panel<kKind, Stores::kOrdinary>(tile, panel, seen);
    }
  }
  _mm_sfence();
  return {seen.nan != 0, seen.negative != 0};
}

ScaleBytesSeen scales_to_lines(const ScaleTile& tile) noexcept {
  const bool rows_first = tile.group_step_bytes == 1;
  if (!rows_first && tile.row_step_bytes != 1 && tile.row_step_bytes != 2) {
    return scalar::scales_to_lines(tile);
  }
  return tile.shape.kind == PanelKind::kMxfp4 ? scales_of<PanelKind::kMxfp4>(tile)
                                              : scales_of<PanelKind::kNvfp4>(tile);
}

}  // namespace

void install_scales(KernelTable& table) noexcept { table.scales_to_lines = scales_to_lines; }

}  // namespace lode::kernels::avx512
