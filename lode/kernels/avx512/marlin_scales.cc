#include <cstdint>

#include "lode/kernels/avx512/marlin.h"
#include "lode/kernels/avx512/marlin_parts.h"
#include "lode/kernels/avx512/relayout_parts.h"

// The law is scalar/marlin.cc. A square of 64 rows by 64 groups at a time: bytes through their
// tables row by row, then turned round in three steps: four bytes by four, bytes within those, and
// the quarters of 16 rows.

namespace lode::kernels::avx512 {
namespace {

constexpr std::size_t kSide = ScaleColumns::kMost;
constexpr std::size_t kRegisters = kSide;  // of the square

struct alignas(64) Square {
  std::byte lines[kRegisters][kLineBytes];
};

struct alignas(64) ByteOrder {
  std::uint8_t at[64];
};
// 16 rows of four groups each become four groups of 16 rows.
consteval ByteOrder groups_first() {
  ByteOrder order{};
  for (std::uint32_t i = 0; i < 64; ++i) {
    order.at[i] = static_cast<std::uint8_t>(4 * (i % 16) + i / 16);
  }
  return order;
}
constexpr ByteOrder kGroupsFirst = groups_first();

/// Each byte through a table of 256.
LODE_KERNEL_INLINE __m512i look_up(const std::uint8_t* table, __m512i bytes) noexcept {
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_loadu_si512(table), bytes, _mm512_loadu_si512(table + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128), bytes,
                                                _mm512_loadu_si512(table + 192));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high);
}

/// The rows' bytes from `group` on, through their tables.
LODE_KERNEL_INLINE void load_square(const ScaleColumns& scales, std::size_t group,
                                    Square& square) noexcept {
  const std::size_t left = group < scales.row_bytes ? scales.row_bytes - group : 0;
  const __mmask64 there = first_bytes(left);
  for (std::size_t row = 0; row < kSide; ++row) {
    __m512i bytes = _mm512_setzero_si512();
    if (row < scales.num_columns) {
      if (scales.rows[row] != nullptr && left > 0) {
        bytes = _mm512_maskz_loadu_epi8(there, scales.rows[row] + group);
        ask_for(scales.rows[row] + group + kLineBytes);
      }
      bytes = look_up(scales.tables[row], bytes);
    }
    _mm512_store_si512(square.lines[row], bytes);
  }
}

/// Rows 16a to 16a + 15 become register a of each four groups.
LODE_KERNEL_INLINE void turn_quarter(const Square& from, std::size_t a, Square& to) noexcept {
  const __m512i order = _mm512_load_si512(kGroupsFirst.at);
  __m512i row[16];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) row[i] = _mm512_load_si512(from.lines[16 * a + i]);
  transpose(row);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    _mm512_store_si512(to.lines[4 * i + a], _mm512_permutexvar_epi8(order, row[i]));
  }
}

/// Groups 4i to 4i + 3 of the square that begins at `group`, as far as there are so many.
template <Stores kStores>
LODE_KERNEL_INLINE void put_four(const ScaleColumns& scales, std::size_t group,
                                 const std::byte (*quarters)[kLineBytes]) noexcept {
  const __mmask64 columns = first_bytes(scales.num_columns);
  __m512i made[4];
  for (std::size_t i = 0; i < 4; ++i) made[i] = _mm512_load_si512(quarters[i]);
  transpose_lanes(made);
  for (std::size_t i = 0; i < 4 && group + i < scales.num_groups; ++i) {
    std::byte* const to = scales.out + (group + i) * scales.out_step_bytes;
    if constexpr (kStores == Stores::kStreaming) {
      put<kStores>(to, made[i]);
    } else {
      _mm512_mask_storeu_epi8(to, columns, made[i]);
    }
  }
}

template <Stores kStores>
void make_columns(const ScaleColumns& scales) noexcept {
  Square rows, quarters;
  for (std::size_t group = 0; group < scales.num_groups; group += kSide) {
    load_square(scales, group, rows);
    for (std::size_t a = 0; a < 4; ++a) turn_quarter(rows, a, quarters);
    for (std::size_t four = 0; four < kSide; four += 4) {
      put_four<kStores>(scales, group + four, quarters.lines + four);
    }
  }
}

void scales_to_columns(const ScaleColumns& scales) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(scales.out);
  const bool on_lines = (begin | scales.out_step_bytes) % kLineBytes == 0;
  if (on_lines && scales.num_columns == kSide) {
    make_columns<Stores::kStreaming>(scales);
    _mm_sfence();  // whoever is told that the scales are done must see them
  } else {
    make_columns<Stores::kOrdinary>(scales);
  }
}

}  // namespace

void install_marlin_scales(KernelTable& table) noexcept {
  table.scales_to_columns = scales_to_columns;
}

}  // namespace lode::kernels::avx512
