#include <cstdint>

#include "lode/kernels/avx2/marlin.h"
#include "lode/kernels/avx2/relayout_parts.h"

// The law is scalar/marlin.cc. A square of 64 rows by 64 groups at a time: bytes through their
// tables row by row, in order, then 16 by 16 of them turned round at once.

namespace lode::kernels::avx2 {
namespace {

constexpr std::size_t kSide = ScaleColumns::kMost;
constexpr std::size_t kPatch = 16;

struct alignas(64) Square {
  std::byte lines[kSide][kSide];
};

/// Eight bytes through a table, in a register: a loop of stores would be made into insertions.
LODE_KERNEL_INLINE void look_up_8(const std::uint8_t* table, const std::byte* from,
                                  std::byte* to) noexcept {
  std::uint64_t codes = 0, made = 0;
  __builtin_memcpy(&codes, from, sizeof codes);
#pragma GCC unroll 8
  for (unsigned bit = 0; bit < 64; bit += 8) {
    made |= static_cast<std::uint64_t>(table[codes >> bit & 0xFF]) << bit;
  }
  __builtin_memcpy(to, &made, sizeof made);
}

/// The rows' bytes from `group` on, zeros where there are none. By themselves first: they come from
/// far away, and look-ups would keep the machine from asking for the next ones meanwhile.
LODE_KERNEL_INLINE void load_square(const ScaleColumns& scales, std::size_t group,
                                    Square& square) noexcept {
  const std::size_t left = group < scales.row_bytes ? scales.row_bytes - group : 0;
  const std::size_t here = left < kSide ? left : kSide;
  for (std::size_t row = 0; row < scales.num_columns; ++row) {
    std::byte* const to = square.lines[row];
    if (scales.rows[row] == nullptr || here < kSide) {
      __builtin_memset(to, 0, kSide);
      if (scales.rows[row] != nullptr && here > 0) {
        __builtin_memcpy(to, scales.rows[row] + group, here);
      }
      continue;
    }
    const std::byte* const from = scales.rows[row] + group;
    ask_for(from + kLineBytes);
    put<Stores::kOrdinary>(to, load_32(from), load_32(from + kSide / 2));
  }
  for (std::size_t row = 0; row < scales.num_columns; ++row) {
    for (std::size_t i = 0; i < kSide; i += 8) {
      look_up_8(scales.tables[row], square.lines[row] + i, square.lines[row] + i);
    }
  }
}

/// One step of turning 16 registers round: pairs of halves in turns of a byte.
LODE_KERNEL_INLINE void interleave(const __m128i (&from)[kPatch], __m128i (&to)[kPatch]) noexcept {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kPatch / 2; ++i) {
    to[2 * i] = _mm_unpacklo_epi8(from[i], from[i + kPatch / 2]);
    to[2 * i + 1] = _mm_unpackhi_epi8(from[i], from[i + kPatch / 2]);
  }
}

/// Sixteen rows of sixteen bytes become sixteen columns: a step halves the distance four times.
LODE_KERNEL_INLINE void transpose_bytes(__m128i (&row)[kPatch]) noexcept {
  __m128i other[kPatch];
  interleave(row, other);
  interleave(other, row);
  interleave(row, other);
  interleave(other, row);
}

/// 64 rows of groups become 64 groups of rows.
LODE_KERNEL_INLINE void turn_square(const Square& rows, Square& groups) noexcept {
  for (std::size_t row = 0; row < kSide; row += kPatch) {
    for (std::size_t group = 0; group < kSide; group += kPatch) {
      __m128i patch[kPatch];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kPatch; ++i) patch[i] = load_16(&rows.lines[row + i][group]);
      transpose_bytes(patch);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kPatch; ++i) {
        _mm_store_si128(reinterpret_cast<__m128i*>(&groups.lines[group + i][row]), patch[i]);
      }
    }
  }
}

// What is written goes out in whole lines: groups lie far from each other, often on the same set
// of a cache.
template <Stores kStores>
void make_columns(const ScaleColumns& scales) noexcept {
  Square rows, groups;
  __builtin_memset(&rows, 0, sizeof rows);
  for (std::size_t group = 0; group < scales.num_groups; group += kSide) {
    load_square(scales, group, rows);
    turn_square(rows, groups);
    std::byte* to = scales.out + group * scales.out_step_bytes;
    for (std::size_t i = 0; i < kSide && group + i < scales.num_groups; ++i) {
      if (scales.num_columns == kSide) {
        put<kStores>(to, load_32(groups.lines[i]), load_32(groups.lines[i] + kSide / 2));
      } else {
        __builtin_memcpy(to, groups.lines[i], scales.num_columns);
      }
      to += scales.out_step_bytes;
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

}  // namespace lode::kernels::avx2
