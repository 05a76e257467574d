#include "lode/kernels/avx512/marlin.h"

#include "lode/kernels/avx512/marlin_parts.h"
#include "lode/kernels/avx512/relayout_parts.h"
#include "lode/kernels/marlin_chunk.h"

// The law is scalar/marlin.cc. Rows r, r + 8, r + 16, ... of a tile make 64 or 128 bytes of it that
// lie together. So 64 bytes of each of them are turned round, tiles against rows, and what a tile
// has then in one or two registers is put in order by one look-up a byte.

namespace lode::kernels::avx512 {
namespace {

constexpr MarlinShape kWide4{4, false}, kWide8{8, false}, kNarrow4{4, true}, kNarrow8{8, true};

struct alignas(64) Bytes {
  std::uint8_t at[64];
};
struct alignas(64) Dwords {
  std::uint32_t at[16];
};

// Of a word's bytes, the first and third source or the second and fourth (weight_layouts 1.4).
consteval Bytes wide4_sources(std::uint32_t later) {
  Bytes bytes{};
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t q = i / 16, warp = i / 4 % 4, half = i % 2;
    bytes.at[i] = static_cast<std::uint8_t>(8 * (2 * warp + half) + q + 4 * later);
  }
  return bytes;
}
consteval Bytes narrow4_sources(std::uint32_t later) {
  Bytes bytes{};
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t q = i / 16, warp = i / 4 % 4, second = i / 2 % 2;
    bytes.at[i] = static_cast<std::uint8_t>(16 * warp + 2 * q + second + 8 * later);
  }
  return bytes;
}
// Which eight bits of its quadword a byte takes, so that the nibble that it needs is its low one
// (of the first sources) or its high one (of the second).
// Not consteval: clang 14 cannot take the flag of a template for its constant.
constexpr Bytes nibble_shifts(bool wide, bool first) {
  Bytes shifts{};
  for (std::uint32_t i = 0; i < 64; ++i) {
    const bool high = wide ? i % 4 >= 2 : i % 2 == 1;  // the nibble of the source
    const std::uint32_t at = 8 * (i % 8);
    const std::uint32_t bits = first ? at + (high ? 4 : 0) : at + (high ? 0 : 60);
    shifts.at[i] = static_cast<std::uint8_t>(bits % 64);
  }
  return shifts;
}
consteval Bytes wide8_sources(std::uint32_t half) {
  constexpr std::uint32_t kOrder[4] = {0, 8, 1, 9};
  Bytes bytes{};
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t q = 2 * half + i / 32, row = i / 4 % 8;
    bytes.at[i] = static_cast<std::uint8_t>(16 * row + 2 * q + kOrder[i % 4]);
  }
  return bytes;
}
consteval Dwords narrow8_sources(std::uint32_t half) {
  Dwords dwords{};
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t q = 2 * half + i / 8, warp = i / 2 % 4, later = i % 2;
    dwords.at[i] = 8 * warp + 4 * later + q;
  }
  return dwords;
}

LODE_KERNEL_INLINE __m512i line_of(const Bytes& bytes) noexcept {
  return _mm512_load_si512(bytes.at);
}

/// 64 bytes of rows `first`, first + 8, ...; asks for the next 64.
template <std::size_t kNum>
LODE_KERNEL_INLINE void load_rows(const MarlinChunk& chunk, std::size_t first,
                                  __m512i (&row)[kNum]) noexcept {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kNum; ++i) {
    const std::byte* const from = chunk.rows[first + 8 * i];
    row[i] = _mm512_loadu_si512(from);
    ask_for(from + kLineBytes);
  }
}

/// Eight rows of eight quadwords become eight quadwords of eight rows.
LODE_KERNEL_INLINE void transpose_quads(__m512i (&row)[8]) noexcept {
  __m512i pair[8], four[8];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 8; i += 2) {
    pair[i] = _mm512_unpacklo_epi64(row[i], row[i + 1]);      // quadwords 0 2 4 6
    pair[i + 1] = _mm512_unpackhi_epi64(row[i], row[i + 1]);  // 1 3 5 7
  }
#pragma GCC unroll 2
  for (std::size_t odd = 0; odd < 2; ++odd) {
    four[odd] = _mm512_shuffle_i64x2(pair[odd], pair[2 + odd], 0x44);
    four[2 + odd] = _mm512_shuffle_i64x2(pair[odd], pair[2 + odd], 0xEE);
    four[4 + odd] = _mm512_shuffle_i64x2(pair[4 + odd], pair[6 + odd], 0x44);
    four[6 + odd] = _mm512_shuffle_i64x2(pair[4 + odd], pair[6 + odd], 0xEE);
    row[odd] = _mm512_shuffle_i64x2(four[odd], four[4 + odd], 0x88);
    row[2 + odd] = _mm512_shuffle_i64x2(four[odd], four[4 + odd], 0xDD);
    row[4 + odd] = _mm512_shuffle_i64x2(four[2 + odd], four[6 + odd], 0x88);
    row[6 + odd] = _mm512_shuffle_i64x2(four[2 + odd], four[6 + odd], 0xDD);
  }
}

/// The words of one tile, four by four, from the bytes that they are made of.
template <bool kWide>
LODE_KERNEL_INLINE __m512i nibbles_of(__m512i bytes) noexcept {
  static constexpr Bytes kFirst = kWide ? wide4_sources(0) : narrow4_sources(0);
  static constexpr Bytes kSecond = kWide ? wide4_sources(1) : narrow4_sources(1);
  static constexpr Bytes kLow = nibble_shifts(kWide, true), kHigh = nibble_shifts(kWide, false);
  const __m512i first = _mm512_permutexvar_epi8(line_of(kFirst), bytes);
  const __m512i second = _mm512_permutexvar_epi8(line_of(kSecond), bytes);
  const __m512i low = _mm512_multishift_epi64_epi8(line_of(kLow), first);
  const __m512i high = _mm512_multishift_epi64_epi8(line_of(kHigh), second);
  return _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x0F), low, high, 0xCA);  // by bits: low, high
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_wide4(const MarlinChunk& chunk) noexcept {
  for (std::size_t c = 0; c < 8; ++c) {
    __m512i tile[8];
    load_rows(chunk, c, tile);
    transpose_quads(tile);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      if (i >= chunk.num_tiles) continue;
      put<kStores>(chunk.tiles + i * chunk.tile_step_bytes + c * kLineBytes,
                   nibbles_of<true>(tile[i]));
    }
  }
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_narrow4(const MarlinChunk& chunk) noexcept {
  for (std::size_t c = 0; c < 8; ++c) {
    __m512i tile[4];
    load_rows(chunk, c, tile);
    transpose_lanes(tile);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      if (i >= chunk.num_tiles) continue;
      put<kStores>(chunk.tiles + i * chunk.tile_step_bytes + c * kLineBytes,
                   nibbles_of<false>(tile[i]));
    }
  }
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_wide8(const MarlinChunk& chunk) noexcept {
  static constexpr Bytes kFirst = wide8_sources(0), kSecond = wide8_sources(1);
  for (std::size_t c = 0; c < 8; ++c) {
    __m512i tile[8];  // rows 0 to 24 of tiles 0 to 3, then rows 32 to 56
    load_rows(chunk, c, tile);
    transpose_lanes(tile);
    transpose_lanes(tile + 4);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      if (i >= chunk.num_tiles) continue;
      std::byte* const to = chunk.tiles + i * chunk.tile_step_bytes + c * 2 * kLineBytes;
      put<kStores>(to, _mm512_permutex2var_epi8(tile[i], line_of(kFirst), tile[4 + i]));
      put<kStores>(to + kLineBytes,
                   _mm512_permutex2var_epi8(tile[i], line_of(kSecond), tile[4 + i]));
    }
  }
}

template <Stores kStores>
LODE_KERNEL_INLINE void make_narrow8(const MarlinChunk& chunk) noexcept {
  static constexpr Dwords kFirst = narrow8_sources(0), kSecond = narrow8_sources(1);
  const __m512i first = _mm512_load_si512(kFirst.at), second = _mm512_load_si512(kSecond.at);
  for (std::size_t c = 0; c < 8; ++c) {
    __m512i row[4];
    load_rows(chunk, c, row);
    const __m512i low[2] = {_mm512_shuffle_i64x2(row[0], row[1], 0x44),
                            _mm512_shuffle_i64x2(row[0], row[1], 0xEE)};
    const __m512i high[2] = {_mm512_shuffle_i64x2(row[2], row[3], 0x44),
                             _mm512_shuffle_i64x2(row[2], row[3], 0xEE)};
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      if (i >= chunk.num_tiles) continue;
      std::byte* const to = chunk.tiles + i * chunk.tile_step_bytes + c * 2 * kLineBytes;
      put<kStores>(to, _mm512_permutex2var_epi32(low[i], first, high[i]));
      put<kStores>(to + kLineBytes, _mm512_permutex2var_epi32(low[i], second, high[i]));
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

}  // namespace lode::kernels::avx512
