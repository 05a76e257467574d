#pragma once

#include <cstdint>
#include <span>

#include "lode/layout/scatter.h"

namespace lode::layout {

/// Turns a tile of BF16, F16, F32 or FP8 numbers to `kInt8Row128`: for every row and 128 k,
/// s = max|x| / 127 and codes rint(x / s); zeros where all are zero. False if a number is not
/// finite, or a scale of the source is bad.
///
/// Shapes:  source [row_end - row_begin, k_end - k_begin]; `scales` of the same rows and k, or null
///          where `encoding` has none; panels [total_bytes] of `layout`, which is kInt8Row128.
/// Memory:  none.
[[nodiscard]] bool requantise_to_int8(const PanelLayout& layout, const PanelTile& tile,
                                      const formats::Encoding& encoding, const SourceCodes& source,
                                      const SourceScales* scales,
                                      std::span<std::byte> panels) noexcept;

/// Numbers [k_begin, k_end) of a source row as f32, by the law of formats/dequantise.h for
/// encodings without a scale above the blocks. `row` and `k_begin` are the matrix's; the source's
/// bytes begin at the tile's first row and k.
///
/// Shapes:  out [at most 128, within the tile's k].
/// Source:  tests/golden/quantised: the law's results are the producers'.
struct SourceRow {
  const formats::Encoding& encoding;
  const SourceCodes& codes;
  const SourceScales* scales = nullptr;
  std::uint64_t tile_row = 0;  // from the tile's first row
  std::uint64_t tile_k = 0;    // from the tile's first k
  std::uint64_t row = 0;       // of the matrix
  std::uint64_t k = 0;         // of the matrix
};
void decode_source_row(const SourceRow& from, std::span<float> out) noexcept;

}  // namespace lode::layout
