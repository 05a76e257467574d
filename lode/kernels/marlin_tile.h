#pragma once

#include <cstddef>
#include <cstdint>

#include "lode/kernels/panel.h"

namespace lode::kernels {

// One tile of a weight matrix as the Marlin GPU kernels read it: 1024 codes, in the order in which
// the threads of four warps hold them for their tensor cores. Thread `lane` of 32 takes with one
// load the words of all four warps.
//
//   16-bit activations, 4-bit codes: 16 k by 64 rows, 128 words of 32 bits
//
//     words     0..3         4..7         8..11        12..15       16..19   ...   124..127
//             [k 0 row 0]  [k 2 row 0]  [k 4 row 0]  [k 6 row 0]  [k 0 row 1]    [k 6 row 7]
//     the four words of a place: rows +0, +16, +32, +48 (the warps)
//     the eight codes of a word, low bits first:
//             k+0   k+8   k+0   k+8   k+1   k+9   k+1   k+9
//             r+0   r+0   r+8   r+8   r+0   r+0   r+8   r+8
//
//   16-bit activations, 8-bit codes: 16 k by 64 rows, 256 words. The same places, of eight words
//     each: rows +0, +8, +16, ..., +56; the four codes of a word: k+0, k+8, k+1, k+9.
//
//   8-bit activations: 32 k by 32 rows. Places of k 0, 4, 8, 12; codes of a word:
//     4 bits, four words a place (rows +0, +8, +16, +24): k+0, k+16, k+1, k+17, k+2, k+18, ...
//     8 bits, eight words (rows +0 of k+0, +0 of k+16, +8 of k+0, ...): k+0, k+1, k+2, k+3
//
// Padding: there is none in a tile. Whoever pads gives rows and k of zeros.
// Source: weight_layouts 1.3 and 1.4; tests/golden/weight_layouts, marlin_repack_*.

/// Which of the four orders.
struct MarlinShape {
  std::uint32_t bits = 4;           // of a code: 4 or 8
  bool narrow_activations = false;  // the GPU kernel reads activations of 8 bits

  LODE_KERNEL_INLINE constexpr std::size_t tile_k() const noexcept {
    return narrow_activations ? 32 : 16;
  }
  LODE_KERNEL_INLINE constexpr std::size_t tile_rows() const noexcept {
    return narrow_activations ? 32 : 64;
  }
  LODE_KERNEL_INLINE constexpr std::size_t tile_bytes() const noexcept { return 128UL * bits; }
  /// What a tile takes of each row: 8, 16 or 32 bytes.
  LODE_KERNEL_INLINE constexpr std::size_t tile_row_bytes() const noexcept {
    return tile_k() * bits / 8;
  }

  friend constexpr bool operator==(const MarlinShape&, const MarlinShape&) = default;
};

/// A row and a k within a tile, and a code's number in it: bit `code * bits`, low bits first.
struct MarlinSpot {
  std::uint32_t row = 0;
  std::uint32_t k = 0;
};

/// The layout: which code of the tile a row and a k are.
LODE_KERNEL_INLINE constexpr std::uint32_t marlin_code(const MarlinShape& shape,
                                                       const MarlinSpot& spot) noexcept {
  const std::uint32_t third = spot.row % 8;
  if (shape.narrow_activations) {
    const std::uint32_t half = spot.k / 16, lane = 4 * third + spot.k % 16 / 4;
    const std::uint32_t warp = spot.row / 8, in_word = spot.k % 4;
    if (shape.bits == 4) return 8 * (4 * lane + warp) + 2 * in_word + half;
    return 4 * (8 * lane + 2 * warp + half) + in_word;
  }
  const std::uint32_t half = spot.row % 16 / 8, lane = 4 * third + spot.k % 8 / 2;
  const std::uint32_t warp = spot.row / 16, odd = spot.k % 2, later = spot.k / 8;
  if (shape.bits == 4) return 8 * (4 * lane + warp) + 4 * odd + 2 * half + later;
  return 4 * (8 * lane + 2 * warp + half) + 2 * odd + later;
}

/// Its inverse: which row and k a code of the tile is.
LODE_KERNEL_INLINE constexpr MarlinSpot marlin_spot(const MarlinShape& shape,
                                                    std::uint32_t code) noexcept {
  const std::uint32_t word = code * shape.bits / 32, field = code % (32 / shape.bits);
  const std::uint32_t words = shape.bits;  // of a lane: 4 or 8
  const std::uint32_t lane = word / words, of_lane = word % words;
  if (shape.narrow_activations) {
    const bool four = shape.bits == 4;
    const std::uint32_t half = four ? field % 2 : of_lane % 2;
    const std::uint32_t warp = four ? of_lane : of_lane / 2, in_word = four ? field / 2 : field;
    return {8 * warp + lane / 4, 16 * half + 4 * (lane % 4) + in_word};
  }
  const bool four = shape.bits == 4;
  const std::uint32_t half = four ? field / 2 % 2 : of_lane % 2;
  const std::uint32_t warp = four ? of_lane : of_lane / 2, odd = four ? field / 4 : field / 2;
  return {16 * warp + 8 * half + lane / 4, 2 * (lane % 4) + odd + 8 * (field % 2)};
}

/// Tiles one below the other: the same rows, k rising. Nothing of the source need be aligned.
struct MarlinColumn {
  MarlinShape shape{};
  const std::byte* const* rows = nullptr;  // tile_rows() of them, at the first k; null: zeros
  std::size_t row_bytes = 0;               // that each of them has from there on; zeros behind
  std::size_t num_tiles = 0;
  std::byte* tiles = nullptr;
  std::size_t tile_step_bytes = 0;  // from a tile to the next

  /// Bytes of a row that all tiles take.
  LODE_KERNEL_INLINE constexpr std::size_t taken_bytes() const noexcept {
    return num_tiles * shape.tile_row_bytes();
  }
};

/// Block scales of one byte of up to 64 rows, which become as many columns, groups first. Each row
/// has a table of what its bytes become; a byte that it does not have is 0 before that.
struct ScaleColumns {
  static constexpr std::size_t kMost = 64;

  const std::byte* rows[kMost] = {};       // at the first group; null: no bytes
  const std::uint8_t* tables[kMost] = {};  // [256] each
  std::size_t row_bytes = 0;               // that each of them has from there on
  std::size_t num_columns = 0;
  std::size_t num_groups = 0;
  std::byte* out = nullptr;        // num_columns bytes of each group
  std::size_t out_step_bytes = 0;  // from a group to the next
};

}  // namespace lode::kernels
