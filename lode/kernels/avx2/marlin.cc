#include "lode/kernels/avx2/marlin.h"

#include "lode/kernels/avx2/relayout_parts.h"
#include "lode/kernels/marlin_chunk.h"

// The law is scalar/marlin.cc. A lane of 16 bytes is what a warp's rows have of a tile: its bytes
// are looked up to four words, of which a transposition of four lanes makes the places of a tile.
// The two lanes of a register are two tiles.

namespace lode::kernels::avx2 {
namespace {

constexpr MarlinShape kWide4{4, false}, kWide8{8, false}, kNarrow4{4, true}, kNarrow8{8, true};
constexpr std::size_t kHalfLine = 32;

LODE_KERNEL_INLINE __m256i both(__m128i lane) noexcept { return _mm256_broadcastsi128_si256(lane); }

template <Stores kStores>
LODE_KERNEL_INLINE void put_half(std::byte* to, __m256i bytes) noexcept {
  if constexpr (kStores == Stores::kStreaming) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bytes);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
  }
}

/// Where what `chunk` makes of rows c, c + 8, ... goes in its tile `tile`, or null beyond the end.
LODE_KERNEL_INLINE std::byte* place(const MarlinChunk& chunk, std::size_t tile,
                                    std::size_t offset) noexcept {
  return tile < chunk.num_tiles ? chunk.tiles + tile * chunk.tile_step_bytes + offset : nullptr;
}

/// Words of four warps, two tiles: 64 bytes of each.
template <Stores kStores>
LODE_KERNEL_INLINE void put_tiles(__m256i (&warp)[4], std::byte* low, std::byte* high) noexcept {
  transpose(warp);
  if (low != nullptr) {
    put_half<kStores>(low, _mm256_permute2x128_si256(warp[0], warp[1], 0x20));
    put_half<kStores>(low + kHalfLine, _mm256_permute2x128_si256(warp[2], warp[3], 0x20));
  }
  if (high != nullptr) {
    put_half<kStores>(high, _mm256_permute2x128_si256(warp[0], warp[1], 0x31));
    put_half<kStores>(high + kHalfLine, _mm256_permute2x128_si256(warp[2], warp[3], 0x31));
  }
}

LODE_KERNEL_INLINE __m256i select_low_nibbles(__m256i low, __m256i high) noexcept {
  const __m256i mask = _mm256_set1_epi8(0x0F);
  return _mm256_or_si256(_mm256_and_si256(low, mask), _mm256_andnot_si256(mask, high));
}

/// Lanes of row r's 8 bytes and row r + 8's: weight_layouts 1.4, first formula.
LODE_KERNEL_INLINE __m256i words_of_wide4(__m256i rows) noexcept {
  const __m256i first = _mm256_shuffle_epi8(
      rows, both(_mm_setr_epi8(0, 8, 0, 8, 1, 9, 1, 9, 2, 10, 2, 10, 3, 11, 3, 11)));
  const __m256i second = _mm256_shuffle_epi8(
      rows, both(_mm_setr_epi8(4, 12, 4, 12, 5, 13, 5, 13, 6, 14, 6, 14, 7, 15, 7, 15)));
  const __m256i low = _mm256_blend_epi16(first, _mm256_srli_epi16(first, 4), 0xAA);
  const __m256i high = _mm256_blend_epi16(_mm256_slli_epi16(second, 4), second, 0xAA);
  return select_low_nibbles(low, high);
}

/// Lanes of one row's 16 bytes: the second formula.
LODE_KERNEL_INLINE __m256i words_of_narrow4(__m256i row) noexcept {
  const __m256i first =
      _mm256_shuffle_epi8(row, both(_mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)));
  const __m256i second = _mm256_shuffle_epi8(
      row, both(_mm_setr_epi8(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15)));
  const __m256i odd = _mm256_set1_epi16(static_cast<short>(0xFF00));
  const __m256i low = _mm256_blendv_epi8(first, _mm256_srli_epi16(first, 4), odd);
  const __m256i high = _mm256_blendv_epi8(_mm256_slli_epi16(second, 4), second, odd);
  return select_low_nibbles(low, high);
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_wide4(const MarlinChunk& chunk) noexcept {
  for (std::size_t c = 0; c < 8; ++c) {
    const std::size_t to = c * kLineBytes;
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i even[4], odd[4];
#pragma GCC unroll 4
      for (std::size_t warp = 0; warp < 4; ++warp) {
        const std::byte* const near = chunk.rows[16 * warp + c] + half * kHalfLine;
        const std::byte* const far = chunk.rows[16 * warp + 8 + c] + half * kHalfLine;
        const __m256i row = load_32(near), later = load_32(far);
        ask_for(near + kLineBytes);
        ask_for(far + kLineBytes);
        even[warp] = words_of_wide4(_mm256_unpacklo_epi64(row, later));
        odd[warp] = words_of_wide4(_mm256_unpackhi_epi64(row, later));
      }
      put_tiles<kStores>(even, place(chunk, 4 * half, to), place(chunk, 4 * half + 2, to));
      put_tiles<kStores>(odd, place(chunk, 4 * half + 1, to), place(chunk, 4 * half + 3, to));
    }
  }
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_narrow4(const MarlinChunk& chunk) noexcept {
  for (std::size_t c = 0; c < 8; ++c) {
    const std::size_t to = c * kLineBytes;
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i words[4];
#pragma GCC unroll 4
      for (std::size_t warp = 0; warp < 4; ++warp) {
        const std::byte* const row = chunk.rows[8 * warp + c] + half * kHalfLine;
        words[warp] = words_of_narrow4(load_32(row));
        ask_for(row + kLineBytes);
      }
      put_tiles<kStores>(words, place(chunk, 2 * half, to), place(chunk, 2 * half + 1, to));
    }
  }
}

/// 128 bytes of a tile, whose words lie in lane kLane / 0x11 of the eight registers.
template <Stores kStores, int kLanes>
LODE_KERNEL_INLINE void put_wide8(const __m256i (&low)[4], const __m256i (&high)[4],
                                  std::byte* to) noexcept {
  if (to == nullptr) return;
#pragma GCC unroll 4
  for (std::size_t q = 0; q < 4; ++q) {
    put_half<kStores>(to + q * kHalfLine, _mm256_permute2x128_si256(low[q], high[q], kLanes));
  }
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_wide8(const MarlinChunk& chunk) noexcept {
  const __m256i order = both(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  for (std::size_t c = 0; c < 8; ++c) {
    const std::size_t to = 2 * c * kLineBytes;
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i low[4], high[4];
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) {
        const std::byte* const near = chunk.rows[8 * i + c] + half * kHalfLine;
        const std::byte* const far = chunk.rows[8 * i + 32 + c] + half * kHalfLine;
        low[i] = _mm256_shuffle_epi8(load_32(near), order);
        high[i] = _mm256_shuffle_epi8(load_32(far), order);
        ask_for(near + kLineBytes);
        ask_for(far + kLineBytes);
      }
      transpose(low);
      transpose(high);
      put_wide8<kStores, 0x20>(low, high, place(chunk, 2 * half, to));
      put_wide8<kStores, 0x31>(low, high, place(chunk, 2 * half + 1, to));
    }
  }
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_narrow8(const MarlinChunk& chunk) noexcept {
  const __m256i in_turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (std::size_t c = 0; c < 8; ++c) {
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i row[4];
#pragma GCC unroll 4
      for (std::size_t warp = 0; warp < 4; ++warp) {
        const std::byte* const from = chunk.rows[8 * warp + c] + half * kHalfLine;
        row[warp] = load_32(from);
        ask_for(from + kLineBytes);
      }
      std::byte* const to = place(chunk, half, 2 * c * kLineBytes);
      if (to == nullptr) continue;
      transpose(row);
#pragma GCC unroll 4
      for (std::size_t q = 0; q < 4; ++q) {
        put_half<kStores>(to + q * kHalfLine, _mm256_permutevar8x32_epi32(row[q], in_turn));
      }
    }
  }
}

template <Stores kStores>
void make_column(const MarlinColumn& column) noexcept {
  const bool narrow = column.shape.narrow_activations;
  if (column.shape.bits == 4) {
    if (narrow) return for_each_chunk(column, kNarrow4, make_narrow4<kStores>);
    return for_each_chunk(column, kWide4, make_wide4<kStores>);
  }
  if (narrow) return for_each_chunk(column, kNarrow8, make_narrow8<kStores>);
  for_each_chunk(column, kWide8, make_wide8<kStores>);
}

void rows_to_marlin(const MarlinColumn& column) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(column.tiles);
  if ((begin | column.tile_step_bytes) % kLineBytes == 0) {
    make_column<Stores::kStreaming>(column);
    _mm_sfence();  // whoever is told that the tiles are done must see them
  } else {
    make_column<Stores::kOrdinary>(column);
  }
}

}  // namespace

void install_marlin(KernelTable& table) noexcept { table.rows_to_marlin = rows_to_marlin; }

}  // namespace lode::kernels::avx2
