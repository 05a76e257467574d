#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lode::layout {

//   A matrix of codes with `rows` outputs, rows first, and the same as GPTQ stores it, words first.
//   A word is 32 bits: 8 codes of 4 bits or 4 of 8, the lowest k in the lowest bits.
//
//     rows first          k 0..7   k 8..15            words first     row 0   row 1
//       row 0            [ a0 ]    [ a1 ]   ...         k 0..7       [ a0 ]  [ b0 ]   ...
//       row 1            [ b0 ]    [ b1 ]               k 8..15      [ a1 ]  [ b1 ]
//
// Padding: none; k is a multiple of a word's codes.
// Source: weight_layouts 1.1; tests/golden/weight_layouts, marlin_pack_view.

/// Turns a matrix of words round; either way.
///
/// Shapes: words [rows, columns]; out [columns, rows], 4 bytes each.
void transpose_words(std::span<const std::byte> words, std::uint64_t rows, std::uint64_t columns,
                     std::span<std::byte> out) noexcept;

/// Act-order: code k of a row becomes what code order[k] was.
///
/// Shapes: row, out [order.size() codes of `bits` bits]; every number of `order` below its size.
void take_in_order(std::span<const std::byte> row, std::uint32_t bits,
                   std::span<const std::uint32_t> order, std::span<std::byte> out) noexcept;

}  // namespace lode::layout
