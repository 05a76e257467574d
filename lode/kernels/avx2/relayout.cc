#include "lode/kernels/avx2/relayout.h"

#include <cstring>

#include "lode/kernels/avx2/relayout_parts.h"
#include "lode/kernels/scalar/relayout.h"

// The laws are scalar/relayout.cc. Lines are written whole and past the caches: they are read again
// only when the load is over, and an ordinary store would fetch from memory what it overwrites.

namespace lode::kernels::avx2 {
namespace {

constexpr std::size_t kDwordBytes = 4;
constexpr std::size_t kColumnBytes = 16;

/// 16 bytes of each of 16 rows to four lines: rows i and i + 4 share a register, so that the
/// transposition within its halves leaves eight rows side by side.
template <Stores kStores>
LODE_KERNEL_INLINE void column(const std::byte* from, std::size_t stride,
                               std::byte* lines) noexcept {
  __m256i low[4], high[4];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    const std::byte* const row = from + i * stride;
    low[i] =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(row)), load_16(row + 4 * stride), 1);
    high[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(row + 8 * stride)),
                                      load_16(row + 12 * stride), 1);
  }
  transpose(low);
  transpose(high);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) put<kStores>(lines + i * kLineBytes, low[i], high[i]);
}

/// The same of fewer rows, or of fewer bytes; what is not there is zero.
void part_of_column(const CodeTile& tile, const std::byte* from, std::size_t num_rows,
                    std::size_t bytes, std::byte* lines) noexcept {
  std::byte rows[kPanelRows * kColumnBytes] = {};
  std::byte made[4 * kLineBytes];
  for (std::size_t i = 0; i < num_rows; ++i) {
    std::memcpy(rows + i * kColumnBytes, from + i * tile.outer_stride_bytes, bytes);
  }
  column<Stores::kOrdinary>(rows, kColumnBytes, made);
  std::memcpy(lines, made, (bytes + kDwordBytes - 1) / kDwordBytes * kLineBytes);
}

/// The same 64 bytes of the next panel's rows.
LODE_KERNEL_INLINE void ask_for_rows(const std::byte* from, std::size_t stride) noexcept {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kPanelRows; ++i) ask_for(from + (kPanelRows + i) * stride);
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
    for (std::size_t at = begin; at < end; at += kColumnBytes) {
      if (num_rows == kPanelRows && end - at >= kColumnBytes) {
        if (at % kLineBytes == 0) ask_for_rows(from + at, tile.outer_stride_bytes);
        column<kStores>(from + at, tile.outer_stride_bytes, lines);
      } else {
        const std::size_t left = end - at < kColumnBytes ? end - at : kColumnBytes;
        part_of_column(tile, from + at, num_rows, left, lines);
      }
      lines += kColumnBytes / kDwordBytes * kLineBytes;
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

/// One unit of kBytes of a panel's rows. kStep is 2 where rows of another matrix lie between
/// them: the second load begins a unit early, so that nothing behind the last row is read.
template <std::size_t kBytes, std::size_t kStep>
LODE_KERNEL_INLINE auto load_unit(const std::byte* from) noexcept {
  if constexpr (kBytes == 1) {
    const __m128i first = load_16(from);
    if constexpr (kStep == 1) return first;
    const __m128i second = load_16(from + 15);
    return _mm_packus_epi16(_mm_and_si128(first, _mm_set1_epi16(0xFF)), _mm_srli_epi16(second, 8));
  } else {
    const __m256i first = load_32(from);
    if constexpr (kStep == 1) return first;
    const __m256i second = load_32(from + 30);
    const __m256i low = _mm256_and_si256(first, _mm256_set1_epi32(0xFFFF));
    const __m256i packed = _mm256_packus_epi32(low, _mm256_srli_epi32(second, 16));
    return _mm256_permute4x64_epi64(packed, 0xD8);
  }
}

/// One line of one panel: four units of a byte, or two of two bytes.
template <Stores kStores>
LODE_KERNEL_INLINE void put_line(const __m128i (&unit)[4], std::byte* line) noexcept {
  const __m128i low01 = _mm_unpacklo_epi8(unit[0], unit[1]);
  const __m128i high01 = _mm_unpackhi_epi8(unit[0], unit[1]);
  const __m128i low23 = _mm_unpacklo_epi8(unit[2], unit[3]);
  const __m128i high23 = _mm_unpackhi_epi8(unit[2], unit[3]);
  put<kStores>(
      line, _mm256_set_m128i(_mm_unpackhi_epi16(low01, low23), _mm_unpacklo_epi16(low01, low23)),
      _mm256_set_m128i(_mm_unpackhi_epi16(high01, high23), _mm_unpacklo_epi16(high01, high23)));
}
template <Stores kStores>
LODE_KERNEL_INLINE void put_line(const __m256i (&unit)[2], std::byte* line) noexcept {
  const __m256i low = _mm256_unpacklo_epi16(unit[0], unit[1]);
  const __m256i high = _mm256_unpackhi_epi16(unit[0], unit[1]);
  put<kStores>(line, _mm256_permute2x128_si256(low, high, 0x20),
               _mm256_permute2x128_si256(low, high, 0x31));
}

/// All of k for as many whole panels as share a line of the source.
template <std::size_t kBytes, std::size_t kStep, Stores kStores>
void units_of_panels(const CodeTile& tile, std::size_t panel, std::size_t num_panels) noexcept {
  constexpr std::size_t kPerLine = kDwordBytes / kBytes;
  const std::size_t block_units = kSuperBlockK * tile.shape.bits / 8 / kBytes;
  const std::size_t num_units = tile.k * tile.shape.bits / 8 / kBytes;
  const std::byte* from = tile.source + panel * kPanelRows * kStep * kBytes;
  std::byte* block = tile.panels + panel * tile.panel_stride_bytes;
  for (std::size_t begin = 0; begin < num_units; begin += block_units) {
    const std::size_t end = begin + block_units < num_units ? begin + block_units : num_units;
    for (std::size_t at = begin; at < end; at += kPerLine) {
      for (std::size_t u = 0; u < kPerLine; ++u) {
        const std::byte* const next = from + u * tile.outer_stride_bytes + kStep * kLineBytes;
        ask_for(next);
        if constexpr (kStep == 2) ask_for(next + kLineBytes);
      }
      for (std::size_t i = 0; i < num_panels; ++i) {
        decltype(load_unit<kBytes, kStep>(from)) unit[kPerLine];
#pragma GCC unroll 4
        for (std::size_t u = 0; u < kPerLine; ++u) {
          unit[u] = load_unit<kBytes, kStep>(from + i * kPanelRows * kStep * kBytes +
                                             u * tile.outer_stride_bytes);
        }
        put_line<kStores>(
            unit, block + i * tile.panel_stride_bytes + (at - begin) / kPerLine * kLineBytes);
      }
      from += kPerLine * tile.outer_stride_bytes;
    }
    block += tile.shape.super_block_bytes();
  }
}

template <std::size_t kBytes, std::size_t kStep>
void units_of_tile(const CodeTile& tile) noexcept {
  constexpr std::size_t kPanels = kDwordBytes / kBytes;
  const bool streaming = on_lines(tile);
  const std::size_t whole = tile.num_rows / kPanelRows;
  for (std::size_t panel = 0; panel < whole; panel += kPanels) {
    const std::size_t here = whole - panel < kPanels ? whole - panel : kPanels;
    if (streaming) {
      units_of_panels<kBytes, kStep, Stores::kStreaming>(tile, panel, here);
    } else {
      units_of_panels<kBytes, kStep, Stores::kOrdinary>(tile, panel, here);
    }
  }
  _mm_sfence();
}

/// Whole panels and whole lines here; what is left to the law.
void units_to_lines(const CodeTile& tile) noexcept {
  const std::size_t unit_bytes = tile.shape.bits < 8 ? 1 : tile.shape.bits / 8;
  const std::size_t step = tile.inner_step_bytes / unit_bytes;
  if (unit_bytes > 2 || tile.inner_step_bytes % unit_bytes != 0 || step == 0 || step > 2 ||
      tile.k % tile.shape.k_per_line() != 0) {
    return scalar::units_to_lines(tile);
  }
  if (unit_bytes == 1) {
    step == 1 ? units_of_tile<1, 1>(tile) : units_of_tile<1, 2>(tile);
  } else {
    step == 1 ? units_of_tile<2, 1>(tile) : units_of_tile<2, 2>(tile);
  }
  const std::size_t whole = tile.num_rows / kPanelRows;
  if (tile.num_rows % kPanelRows == 0) return;
  CodeTile rest = tile;
  rest.source += whole * kPanelRows * tile.inner_step_bytes;
  rest.panels += whole * tile.panel_stride_bytes;
  rest.num_rows = tile.num_rows % kPanelRows;
  scalar::units_to_lines(rest);
}

}  // namespace

void install_relayout(KernelTable& table) noexcept {
  table.rows_to_lines = rows_to_lines;
  table.units_to_lines = units_to_lines;
}

}  // namespace lode::kernels::avx2
