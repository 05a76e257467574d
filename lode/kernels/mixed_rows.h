#pragma once

#include <cstddef>
#include <cstdint>

#include "lode/formats/minifloat.h"

namespace lode::kernels {

/// Which of the two orders of the SM90 kernels (layout/sm90_mixed.h draws them).
enum class MixedOrder : std::uint8_t {
  kNibblePairs,  // FlashInfer 0.6.16
  kBf16Places,   // FlashInfer 0.7
};
inline constexpr std::size_t kMixedBytes = 32;  // of a row in a tile

/// Two rows of FP4 codes, 8 apart, and the two rows that they make together. A row may be null, or
/// shorter than what is made of it: the rest is zeros.
struct MixedRows {
  MixedOrder order{};
  const std::byte* upper = nullptr;
  const std::byte* lower = nullptr;
  std::size_t source_bytes = 0;  // of a row that is there
  std::byte* upper_out = nullptr;
  std::byte* lower_out = nullptr;
  std::size_t out_bytes = 0;  // of a row, a multiple of 32
};

}  // namespace lode::kernels
