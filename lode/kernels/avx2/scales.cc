#include <cstring>

#include "lode/kernels/avx2/relayout.h"
#include "lode/kernels/avx2/relayout_parts.h"
#include "lode/kernels/scalar/relayout.h"

// The law is scalar/relayout.cc. Four scales of each of 16 rows make a line, group by group: within
// four rows the bytes are sorted by group, then the dwords of four such registers transposed.

namespace lode::kernels::avx2 {
namespace {

constexpr std::size_t kGroupsPerLine = kLineBytes / kPanelRows;

/// The sign of each byte.
LODE_KERNEL_INLINE unsigned bits(__m256i mask) noexcept {
  return static_cast<unsigned>(_mm256_movemask_epi8(mask));
}

/// Looks at 32 scales at once; bytes that are not there are zero, which is neither.
struct Seen {
  unsigned nan = 0;
  unsigned negative = 0;

  LODE_KERNEL_INLINE void look_at(PanelKind kind, __m256i scales) noexcept {
    const __m256i all_ones = _mm256_cmpeq_epi8(scales, _mm256_set1_epi8(-1));
    if (kind == PanelKind::kMxfp4) {
      nan |= bits(all_ones);
      return;
    }
    const __m256i magnitude = _mm256_set1_epi8(0x7F);
    const __m256i magnitudes = _mm256_and_si256(scales, magnitude);
    const unsigned zero = bits(_mm256_cmpeq_epi8(magnitudes, _mm256_setzero_si256()));
    nan |= bits(_mm256_cmpeq_epi8(magnitudes, magnitude));
    negative |= bits(scales) & ~bits(all_ones) & ~zero;
  }
};

/// The dwords of rows i and i + 4 to the halves, sorted by group.
LODE_KERNEL_INLINE __m256i sorted(const std::int32_t* dwords) noexcept {
  const __m256i by_group = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0,
                                            4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(dwords)),
                             by_group);
}

template <Stores kStores>
void scales_of_panel(const ScaleTile& tile, std::size_t panel, Seen& seen) noexcept {
  const std::size_t num_groups = tile.shape.groups(tile.k);
  const std::size_t rows_left = tile.num_rows - panel * kPanelRows;
  const std::size_t num_rows = rows_left < kPanelRows ? rows_left : kPanelRows;
  const std::size_t lines_per_block = tile.shape.scale_lines(kSuperBlockK);
  const std::byte* const from = tile.source + panel * kPanelRows * tile.row_step_bytes;
  std::byte* block = tile.panels + panel * tile.panel_stride_bytes;
  std::size_t k = 0, line = 0;
  for (std::size_t at = 0; at < num_groups; at += kGroupsPerLine) {
    const std::size_t bytes = num_groups - at < kGroupsPerLine ? num_groups - at : kGroupsPerLine;
    std::int32_t dwords[kPanelRows] = {};
    for (std::size_t i = 0; i < num_rows; ++i) {
      std::memcpy(&dwords[i], from + at + i * tile.row_step_bytes,
                  bytes == kGroupsPerLine ? kGroupsPerLine : bytes);
    }
    const __m256i low = sorted(dwords), high = sorted(dwords + 8);
    seen.look_at(tile.shape.kind, low);
    seen.look_at(tile.shape.kind, high);
    const __m256i order = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    const __m256i a = _mm256_permutevar8x32_epi32(low, order);
    const __m256i b = _mm256_permutevar8x32_epi32(high, order);
    const __m256i groups01 = _mm256_unpacklo_epi64(a, b), groups23 = _mm256_unpackhi_epi64(a, b);
    const std::size_t here = tile.k - k < kSuperBlockK ? tile.k - k : kSuperBlockK;
    put<kStores>(block + (tile.shape.code_lines(here) + line) * kLineBytes, groups01, groups23);
    if (++line < lines_per_block) continue;
    line = 0;
    k += kSuperBlockK;
    block += tile.shape.super_block_bytes();
  }
}

ScaleBytesSeen scales_to_lines(const ScaleTile& tile) noexcept {
  if (tile.group_step_bytes != 1) return scalar::scales_to_lines(tile);
  Seen seen;
  const bool streaming = on_lines(tile);
  for (std::size_t panel = 0; panel * kPanelRows < tile.num_rows; ++panel) {
    if (streaming) {
      scales_of_panel<Stores::kStreaming>(tile, panel, seen);
    } else {
      scales_of_panel<Stores::kOrdinary>(tile, panel, seen);
    }
  }
  _mm_sfence();
  return {seen.nan != 0, seen.negative != 0};
}

}  // namespace

void install_scales(KernelTable& table) noexcept { table.scales_to_lines = scales_to_lines; }

}  // namespace lode::kernels::avx2
