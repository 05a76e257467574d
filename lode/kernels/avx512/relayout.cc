#include "lode/kernels/avx512/relayout.h"

#include "lode/kernels/avx512/relayout_parts.h"
#include "lode/kernels/scalar/relayout.h"

// The laws are scalar/relayout.cc. Lines are written whole and past the caches: they are read again
// only when the load is over, and an ordinary store would fetch from memory what it overwrites.

namespace lode::kernels::avx512 {
namespace {

/// 64 bytes of each of 16 rows to 16 lines.
template <Stores kStores>
LODE_KERNEL_INLINE void whole_column(const std::byte* from, std::size_t stride,
                                     std::byte* lines) noexcept {
  __m512i row[16];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    row[i] = _mm512_loadu_si512(from + i * stride);
    ask_for(from + (kPanelRows + i) * stride);
  }
  transpose(row);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) put<kStores>(lines + i * kLineBytes, row[i]);
}

/// The same of fewer rows, or of fewer bytes; what is not there is zero.
void part_of_column(const CodeTile& tile, const std::byte* from, std::size_t num_rows,
                    std::size_t bytes, std::byte* lines) noexcept {
  __m512i row[16];
  const __mmask64 there = first_bytes(bytes);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    row[i] = i < num_rows ? _mm512_maskz_loadu_epi8(there, from + i * tile.outer_stride_bytes)
                          : _mm512_setzero_si512();
  }
  transpose(row);
  const std::size_t num_lines = (bytes + kDwordBytes - 1) / kDwordBytes;
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    if (i < num_lines) _mm512_storeu_si512(lines + i * kLineBytes, row[i]);
  }
}

template <Stores kStores>
void rows_of_panel(const CodeTile& tile, std::size_t panel) noexcept {
  const std::size_t block_bytes = kSuperBlockK * tile.shape.bits / 8;  // of a row
  const std::size_t row_bytes = (tile.k * tile.shape.bits + 7) / 8;
  const std::size_t num_rows = tile.rows_of(panel);
  const std::byte* const from = tile.source + panel * kPanelRows * tile.outer_stride_bytes;
  std::byte* block = tile.panels + panel * tile.panel_stride_bytes;
  for (std::size_t begin = 0; begin < row_bytes; begin += block_bytes) {
    std::byte* lines = block;
    const std::size_t end = begin + block_bytes < row_bytes ? begin + block_bytes : row_bytes;
    for (std::size_t at = begin; at < end; at += kLineBytes) {
      if (num_rows == kPanelRows && end - at >= kLineBytes) {
        whole_column<kStores>(from + at, tile.outer_stride_bytes, lines);
      } else {
        const std::size_t left = end - at < kLineBytes ? end - at : kLineBytes;
        part_of_column(tile, from + at, num_rows, left, lines);
      }
      lines += kPanelRows * kLineBytes;
    }
    block += tile.shape.super_block_bytes();
  }
}

void rows_to_lines(const CodeTile& tile) noexcept {
  const bool streaming = on_lines(tile);
  for (std::size_t panel = 0; panel < tile.num_panels(); ++panel) {
    if (streaming) {
      rows_of_panel<Stores::kStreaming>(tile, panel);
    } else {
      rows_of_panel<Stores::kOrdinary>(tile, panel);
    }
  }
  _mm_sfence();  // whoever is told that the tile is done must see it
}

/// Units of kBytes: a register holds one unit of 64 / kBytes rows, which are 4 / kBytes panels;
/// 4 / kBytes units make a line of each of them.
template <std::size_t kBytes>
struct Units {
  static constexpr std::size_t kRows = kLineBytes / kBytes;
  static constexpr std::size_t kPanels = kDwordBytes / kBytes;
  static constexpr std::size_t kPerLine = kDwordBytes / kBytes;
};

/// kPerLine units of k to one line of each panel.
LODE_KERNEL_INLINE void interleave(__m512i (&unit)[4]) noexcept {
  const __m512i low01 = _mm512_unpacklo_epi8(unit[0], unit[1]);
  const __m512i high01 = _mm512_unpackhi_epi8(unit[0], unit[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(unit[2], unit[3]);
  const __m512i high23 = _mm512_unpackhi_epi8(unit[2], unit[3]);
  // Four rows a lane, and a panel's 16 rows are the same lane of the four.
  const __m512i rows0 = _mm512_unpacklo_epi16(low01, low23);
  const __m512i rows4 = _mm512_unpackhi_epi16(low01, low23);
  const __m512i rows8 = _mm512_unpacklo_epi16(high01, high23);
  const __m512i rows12 = _mm512_unpackhi_epi16(high01, high23);
  const __m512i a = _mm512_shuffle_i32x4(rows0, rows4, 0x44);
  const __m512i b = _mm512_shuffle_i32x4(rows8, rows12, 0x44);
  const __m512i c = _mm512_shuffle_i32x4(rows0, rows4, 0xEE);
  const __m512i d = _mm512_shuffle_i32x4(rows8, rows12, 0xEE);
  unit[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  unit[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
  unit[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  unit[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
}
LODE_KERNEL_INLINE void interleave(__m512i (&unit)[2]) noexcept {
  const __m512i low = _mm512_unpacklo_epi16(unit[0], unit[1]);
  const __m512i high = _mm512_unpackhi_epi16(unit[0], unit[1]);
  unit[0] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
  unit[1] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
}
LODE_KERNEL_INLINE void interleave(__m512i (&)[1]) noexcept {}

/// All of k for the panels of one register of rows.
template <std::size_t kBytes, std::size_t kStep, Stores kStores>
void units_of_panels(const CodeTile& tile, std::size_t panel) noexcept {
  using U = Units<kBytes>;
  const std::size_t first_row = panel * kPanelRows;
  const std::size_t left = tile.num_rows - first_row;
  const UnitLoader<kBytes, kStep> loader(left < U::kRows ? left : U::kRows);
  const std::size_t panels_left = tile.num_panels() - panel;
  const std::size_t panels = panels_left < U::kPanels ? panels_left : U::kPanels;
  const std::size_t block_units = kSuperBlockK * tile.shape.bits / 8 / kBytes;
  const std::size_t num_units = (tile.k * tile.shape.bits + 7) / 8 / kBytes;
  const std::byte* from = tile.source + first_row * kStep * kBytes;
  std::byte* block = tile.panels + panel * tile.panel_stride_bytes;
  for (std::size_t begin = 0; begin < num_units; begin += block_units) {
    std::byte* lines = block;
    const std::size_t end = begin + block_units < num_units ? begin + block_units : num_units;
    for (std::size_t at = begin; at < end; at += U::kPerLine) {
      __m512i unit[U::kPerLine];
#pragma GCC unroll 4
      for (std::size_t i = 0; i < U::kPerLine; ++i) {
        unit[i] = at + i < end ? loader.load(from) : _mm512_setzero_si512();
        ask_for(from + kStep * kLineBytes);
        if constexpr (kStep == 2) ask_for(from + (kStep + 1) * kLineBytes);
        from += tile.outer_stride_bytes;
      }
      interleave(unit);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < U::kPanels; ++i) {
        if (i < panels) put<kStores>(lines + i * tile.panel_stride_bytes, unit[i]);
      }
      lines += kLineBytes;
    }
    block += tile.shape.super_block_bytes();
  }
}

template <std::size_t kBytes, std::size_t kStep>
void units_of_tile(const CodeTile& tile) noexcept {
  const bool streaming = on_lines(tile);
  for (std::size_t panel = 0; panel < tile.num_panels(); panel += Units<kBytes>::kPanels) {
    if (streaming) {
      units_of_panels<kBytes, kStep, Stores::kStreaming>(tile, panel);
    } else {
      units_of_panels<kBytes, kStep, Stores::kOrdinary>(tile, panel);
    }
  }
  _mm_sfence();
}

void units_to_lines(const CodeTile& tile) noexcept {
  const std::size_t unit_bytes = tile.shape.bits < 8 ? 1 : tile.shape.bits / 8;
  const std::size_t step = tile.inner_step_bytes / unit_bytes;
  if (tile.inner_step_bytes % unit_bytes != 0 || step == 0 || step > 2) {
    return scalar::units_to_lines(tile);
  }
  switch (unit_bytes) {
    case 1:
      return step == 1 ? units_of_tile<1, 1>(tile) : units_of_tile<1, 2>(tile);
    case 2:
      return step == 1 ? units_of_tile<2, 1>(tile) : units_of_tile<2, 2>(tile);
    default:
      return step == 1 ? units_of_tile<4, 1>(tile) : units_of_tile<4, 2>(tile);
  }
}

}  // namespace

void install_relayout(KernelTable& table) noexcept {
  table.rows_to_lines = rows_to_lines;
  table.units_to_lines = units_to_lines;
}

}  // namespace lode::kernels::avx512
