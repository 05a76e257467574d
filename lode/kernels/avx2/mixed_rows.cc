#include "lode/kernels/avx2/mixed_rows.h"

#include <immintrin.h>

// The law is scalar/mixed_rows.cc. A register is the 32 bytes of a tile's row; the words that its
// two rows make are 16 for each of the two rows that come out, 8 to a register.

namespace lode::kernels::avx2 {
namespace {

struct Pair {
  __m256i upper;
  __m256i lower;
};

LODE_KERNEL_INLINE __m256i load(const std::byte* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
LODE_KERNEL_INLINE void store(std::byte* to, __m256i bytes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}
LODE_KERNEL_INLINE __m256i same_in_both(__m128i lane) noexcept {
  return _mm256_broadcastsi128_si256(lane);
}
LODE_KERNEL_INLINE __m256i all(std::uint32_t word) noexcept {
  return _mm256_set1_epi32(static_cast<int>(word));
}

/// Four bytes of each lane from byte kFirst on, one to a word.
template <char kFirst>
LODE_KERNEL_INLINE __m256i to_words(__m256i bytes) noexcept {
  constexpr char kNone = -1;
  return _mm256_shuffle_epi8(
      bytes, same_in_both(_mm_setr_epi8(kFirst, kNone, kNone, kNone, kFirst + 1, kNone, kNone,
                                        kNone, kFirst + 2, kNone, kNone, kNone, kFirst + 3, kNone,
                                        kNone, kNone)));
}

template <int kLeft>
LODE_KERNEL_INLINE __m256i moved(__m256i words, std::uint32_t bits) noexcept {
  return _mm256_slli_epi32(_mm256_and_si256(words, all(bits)), kLeft);
}

/// Both codes of x2 with their signs 3 bits off: 7..0 to 25 18 17 16, 9 2 1 0.
LODE_KERNEL_INLINE __m256i spread(__m256i x) noexcept {
  const __m256i low = _mm256_or_si256(_mm256_and_si256(x, all(0x07)), moved<6>(x, 0x08));
  return _mm256_or_si256(low, _mm256_or_si256(moved<12>(x, 0x70), moved<18>(x, 0x80)));
}

/// Those of x3, which fill what is left: 30 27 26 29, 14 11 10 13.
LODE_KERNEL_INLINE __m256i fill(__m256i x) noexcept {
  const __m256i low = _mm256_or_si256(moved<13>(x, 0x01), moved<9>(x, 0x06));
  const __m256i high = _mm256_or_si256(moved<25>(x, 0x10), moved<21>(x, 0x60));
  return _mm256_or_si256(_mm256_or_si256(low, moved<11>(x, 0x08)),
                         _mm256_or_si256(high, moved<23>(x, 0x80)));
}

template <char kPart>
LODE_KERNEL_INLINE __m256i bf16_words(const Pair& from) noexcept {
  const __m256i x0 = spread(to_words<8 * kPart>(from.upper));
  const __m256i x1 = spread(to_words<8 * kPart>(from.lower));
  const __m256i x2 = spread(to_words<8 * kPart + 4>(from.upper));
  const __m256i x3 = fill(to_words<8 * kPart + 4>(from.lower));
  return _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi32(x0, 6), _mm256_slli_epi32(x1, 3)),
                         _mm256_or_si256(x2, x3));
}

LODE_KERNEL_INLINE Pair bf16_places(const Pair& from) noexcept {
  return {bf16_words<0>(from), bf16_words<1>(from)};
}

LODE_KERNEL_INLINE Pair nibble_pairs(const Pair& from) noexcept {
  const __m256i low = _mm256_set1_epi8(0x0F);
  const __m256i first = _mm256_or_si256(_mm256_and_si256(from.upper, low),
                                        _mm256_slli_epi16(_mm256_and_si256(from.lower, low), 4));
  const __m256i second = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(from.upper, 4), low),
                                         _mm256_andnot_si256(low, from.lower));
  // Pairs of byte t + 4q to pair 2t + q.
  const __m256i turn =
      same_in_both(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  return {_mm256_shuffle_epi8(_mm256_unpacklo_epi8(first, second), turn),
          _mm256_shuffle_epi8(_mm256_unpackhi_epi8(first, second), turn)};
}

LODE_KERNEL_INLINE __m256i load_edge(const MixedRows& rows, const std::byte* row,
                                     std::size_t at) noexcept {
  alignas(32) std::byte room[kMixedBytes] = {};
  if (row != nullptr && at < rows.source_bytes) {
    const std::size_t left = rows.source_bytes - at;
    __builtin_memcpy(room, row + at, left < kMixedBytes ? left : kMixedBytes);
  }
  return load(room);
}

template <class Mix>
LODE_KERNEL_INLINE void for_each_tile(const MixedRows& rows, Mix mix) noexcept {
  const bool there = rows.upper != nullptr && rows.lower != nullptr;
  const std::size_t shorter =
      rows.source_bytes < rows.out_bytes ? rows.source_bytes : rows.out_bytes;
  const std::size_t whole = there ? shorter / kMixedBytes * kMixedBytes : 0;
  for (std::size_t at = 0; at < rows.out_bytes; at += kMixedBytes) {
    const Pair from = at < whole
                          ? Pair{load(rows.upper + at), load(rows.lower + at)}
                          : Pair{load_edge(rows, rows.upper, at), load_edge(rows, rows.lower, at)};
    const Pair to = mix(from);
    store(rows.upper_out + at, to.upper);
    store(rows.lower_out + at, to.lower);
  }
}

void mix_rows(const MixedRows& rows) noexcept {
  if (rows.order == MixedOrder::kBf16Places) {
    for_each_tile(rows, [](const Pair& from) { return bf16_places(from); });
  } else {
    for_each_tile(rows, [](const Pair& from) { return nibble_pairs(from); });
  }
}

}  // namespace

void install_mixed_rows(KernelTable& table) noexcept { table.mix_rows = mix_rows; }

}  // namespace lode::kernels::avx2
