#pragma once

#include <span>

#include "lode/layout/scatter.h"

namespace lode::layout {

/// Turns a tile of BF16, F16, F32 or FP8 numbers to `kInt8Row128`: for every row and 128 k,
/// s = max|x| / 127 and codes rint(x / s); zeros where all are zero. False if a number is not
/// finite, or a scale of the source is bad. What is made of is the law's numbers
/// (formats/dequantise.h), for encodings without a scale above the blocks.
///
/// Shapes:  source [row_end - row_begin, k_end - k_begin]; `scales` of the same rows and k, or null
///          where `encoding` has none; panels [total_bytes] of `layout`, which is kInt8Row128.
/// Memory:  none; 22 KiB of stack.
/// Source:  tests/golden/quantised: the law's numbers are the producers'.
[[nodiscard]] bool requantise_to_int8(const PanelLayout& layout, const PanelTile& tile,
                                      const formats::Encoding& encoding, const SourceCodes& source,
                                      const SourceScales* scales,
                                      std::span<std::byte> panels) noexcept;

}  // namespace lode::layout
