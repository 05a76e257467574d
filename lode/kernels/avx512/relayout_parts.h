#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "lode/kernels/relayout.h"

// What the re-layout of codes and that of scales share.

namespace lode::kernels::avx512 {

// Unnamed: constructors would be weak symbols where nothing is inlined.
namespace {

constexpr std::size_t kDwordBytes = 4;

LODE_KERNEL_INLINE __mmask64 first_bytes(std::size_t n) noexcept {
  return n >= kLineBytes ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
}

enum class Stores : bool { kOrdinary, kStreaming };

template <Stores kStores>
LODE_KERNEL_INLINE void put(std::byte* line, __m512i bytes) noexcept {
  if constexpr (kStores == Stores::kStreaming) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(line), bytes);
  } else {
    _mm512_storeu_si512(line, bytes);
  }
}

/// Asks for a line that is read a panel later, far enough ahead to come from memory: the machine
/// follows no stream by itself that is cut at every row (Zen 4: up to 1.7 times faster with it).
/// Past the end of the source that is no fault.
LODE_KERNEL_INLINE void ask_for(const std::byte* line) noexcept {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
}

/// Whether every line lies on a line's boundary, as those of slabs do.
template <class Tile>
LODE_KERNEL_INLINE bool on_lines(const Tile& tile) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(tile.panels);
  return ((begin | tile.panel_stride_bytes) % kLineBytes) == 0;
}

/// Sixteen rows of 16 dwords become 16 dwords of 16 rows each: pairs, then fours inside the
/// 128-bit lanes, then the lanes themselves.
LODE_KERNEL_INLINE void transpose(__m512i (&row)[16]) noexcept {
  __m512i pair[16], four[16];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 16; i += 2) {
    pair[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    pair[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 16; i += 4) {
    four[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
    four[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
    four[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
    four[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512i low0 = _mm512_shuffle_i32x4(four[i], four[4 + i], 0x44);
    const __m512i low1 = _mm512_shuffle_i32x4(four[8 + i], four[12 + i], 0x44);
    const __m512i high0 = _mm512_shuffle_i32x4(four[i], four[4 + i], 0xEE);
    const __m512i high1 = _mm512_shuffle_i32x4(four[8 + i], four[12 + i], 0xEE);
    row[i] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    row[4 + i] = _mm512_shuffle_i32x4(low0, low1, 0xDD);
    row[8 + i] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    row[12 + i] = _mm512_shuffle_i32x4(high0, high1, 0xDD);
  }
}

/// Of `first`, whose even units are rows, and `second`, whose odd ones are: all of them.
template <std::size_t kBytes>
LODE_KERNEL_INLINE __m512i every_other(__m512i first, __m512i second) noexcept {
  if constexpr (kBytes == 1) {
    const __m512i low = _mm512_and_si512(first, _mm512_set1_epi16(0xFF));
    const __m512i high = _mm512_srli_epi16(second, 8);
    const __m512i packed = _mm512_packus_epi16(low, high);  // lane by lane, in turns
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
  } else if constexpr (kBytes == 2) {
    const __m512i low = _mm512_and_si512(first, _mm512_set1_epi32(0xFFFF));
    const __m512i high = _mm512_srli_epi32(second, 16);
    const __m512i packed = _mm512_packus_epi32(low, high);
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
  } else {
    const __m512i order =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_epi32(first, order, second);
  }
}

/// One unit of the rows that a register holds. kStep is 1 where they lie side by side, 2 where
/// those of another matrix lie between them; the second load begins a unit early, so that nothing
/// behind the last row is read.
template <std::size_t kBytes, std::size_t kStep>
struct UnitLoader {
  __mmask64 there, there_too;

  LODE_KERNEL_INLINE explicit UnitLoader(std::size_t num_rows) noexcept {
    const std::size_t bytes = num_rows == 0 ? 0 : ((num_rows - 1) * kStep + 1) * kBytes;
    constexpr std::size_t kFirst = kLineBytes - kBytes;
    there = first_bytes(bytes);
    there_too = first_bytes(bytes > kFirst ? bytes - kFirst : 0);
  }
  LODE_KERNEL_INLINE __m512i load(const std::byte* unit) const noexcept {
    const __m512i first = _mm512_maskz_loadu_epi8(there, unit);
    if constexpr (kStep == 1) return first;
    const __m512i second = _mm512_maskz_loadu_epi8(there_too, unit + kLineBytes - kBytes);
    return every_other<kBytes>(first, second);
  }
};

}  // namespace
}  // namespace lode::kernels::avx512
