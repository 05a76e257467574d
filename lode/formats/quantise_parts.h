#pragma once

#include <algorithm>
#include <cstring>

#include "lode/formats/bf16.h"
#include "lode/formats/e2m1.h"
#include "lode/formats/quantise.h"

namespace lode::formats {

// Inside of quantise.cc and its parts, one part a family of rules.
// Source: as quantise.h.

/// The scale of one block: its bits in the scale format, and a number that codes are made with.
struct BlockScale {
  std::uint32_t stored;
  float factor;
};

void quantise_nvfp4(const QuantiseInput& input, Quantised& out);
void quantise_mx(const QuantiseInput& input, Quantised& out);
void quantise_fp8(const QuantiseInput& input, Quantised& out);

/// Rounds to the format of the weights, as arithmetic on tensors of that format does.
inline float rounded(const QuantiseInput& input, float value) noexcept {
  return input.weights == Format::kBf16 ? round_to_bf16(value) : value;
}

/// Part of a matrix under one scale.
struct BlockExtent {
  std::uint64_t row_begin, row_end;
  std::uint64_t begin, end;  // along k
};

inline float block_amax(const QuantiseInput& input, const BlockExtent& block) noexcept {
  float amax = 0.0F;
  for (std::uint64_t row = block.row_begin; row < block.row_end; ++row) {
    const auto part = input.values.subspan(row * input.k + block.begin, block.end - block.begin);
    amax = std::max(amax, largest_magnitude(part));
  }
  return amax;
}

/// Codes of one block. `code(value, factor)` gives the code of one element.
template <class Code>
void encode_block(const QuantiseInput& input, const BlockExtent& block, float factor, Code code,
                  Quantised& out) {
  const bool halves = out.encoding.element == Format::kE2m1;
  for (std::uint64_t row = block.row_begin; row < block.row_end; ++row) {
    const float* values = input.values.data() + row * input.k;
    auto* codes = out.codes.data() + row * (halves ? input.k / 2 : input.k);
    if (halves) {
      for (std::uint64_t i = block.begin; i < block.end; i += 2) {
        const auto low = code(values[i], factor);
        const auto high = code(values[i + 1], factor);
        codes[i / 2] = static_cast<std::byte>(nibble_pair(low, high));
      }
    } else {
      for (std::uint64_t i = block.begin; i < block.end; ++i) {
        codes[i] = static_cast<std::byte>(code(values[i], factor));
      }
    }
  }
}

/// Runs a rule over all blocks: `scale(amax)` gives the BlockScale, `code` the codes.
template <class Scale, class Code>
void quantise_blocks(const QuantiseInput& input, Scale scale, Code code, Quantised& out) {
  const Encoding& encoding = out.encoding;
  const std::uint64_t block_rows = encoding.block_rows == kWhole ? input.rows : encoding.block_rows;
  const std::uint64_t block_k = encoding.block_k == kWhole ? input.k : encoding.block_k;
  const std::size_t scale_bytes = info(encoding.scale).bits / 8;
  const bool one_scale = encoding.block_rows == kWhole && encoding.block_k == kWhole;
  std::byte* stored = out.scales.data();
  for (std::uint64_t row = 0; row < input.rows; row += block_rows) {
    for (std::uint64_t begin = 0; begin < input.k; begin += block_k) {
      const BlockExtent block{row, std::min(row + block_rows, input.rows), begin,
                              std::min(begin + block_k, input.k)};
      const float amax = one_scale && input.amax ? *input.amax : block_amax(input, block);
      const BlockScale chosen = scale(amax);
      std::memcpy(stored, &chosen.stored, scale_bytes);
      stored += scale_bytes;
      encode_block(input, block, chosen.factor, code, out);
    }
  }
}

}  // namespace lode::formats
