#include "lode/layout/nvfp4_rounding.h"

#include <array>
#include <cmath>

namespace lode::layout {
namespace {

// What becomes of each of the 256 codes.
struct Fates {
  std::array<bool, 256> rounded{};
  std::array<bool, 256> lost{};
};

Fates fates_of(float ratio) noexcept {
  Fates fates;
  for (std::uint32_t code = 0; code < fates.rounded.size(); ++code) {
    const auto stored = static_cast<std::uint8_t>(code);
    const float scale = formats::decode_e4m3(stored);
    const float made = formats::decode_e4m3(rescaled_e4m3(stored, ratio));
    if (std::isnan(scale)) continue;
    // Exact: 4 bits of mantissa by 24.
    const double wanted = static_cast<double>(scale) * static_cast<double>(ratio);
    fates.rounded[code] = static_cast<double>(made) != wanted;
    fates.lost[code] = made == 0.0F && scale != 0.0F;
  }
  return fates;
}

}  // namespace

ScalesRounded count_rounded(const CommonScale& common, const MatrixRows& scales) noexcept {
  ScalesRounded count;
  for (std::uint32_t half = 0; half < scales.num_halves; ++half) {
    count.seen += scales.half_rows * scales.row_bytes;
    if (common.ratio(half) == 1.0F) continue;
    const Fates fates = fates_of(common.ratio(half));
    for (std::uint64_t row = 0; row < scales.half_rows; ++row) {
      for (const std::byte scale : scales.row({half, row})) {
        const auto code = static_cast<std::uint8_t>(scale);
        count.rounded += fates.rounded[code] ? 1 : 0;
        count.lost += fates.lost[code] ? 1 : 0;
      }
    }
  }
  return count;
}

}  // namespace lode::layout
