#include "lode/targets/losses.h"

#include <algorithm>
#include <cmath>

#include "lode/formats/e4m3.h"

namespace lode::targets {
namespace {

constexpr std::array<LossInfo, kNumLosses> kLosses{{
    {Loss::kFlushedScales, "flushed_scales",
     "block scales that are too small for the layout and become zero"},
    {Loss::kNegativeScales, "negative_scales",
     "block scales below zero, which the layout does not have"},
    {Loss::kSaturatedScales, "saturated_scales",
     "block scales that are too large with the scale of their matrix in them and become 448"},
    {Loss::kOverflowedScales, "overflowed_scales",
     "scales that are too large for the layout and become infinite or NaN"},
    {Loss::kRaisedScales, "raised_scales",
     "block scales that are raised to the least one of the layout"},
    {Loss::kRoundedScales, "rounded_scales",
     "block scales of gate or up that are rounded to the larger scale of the two"},
    {Loss::kRoundedNumbers, "rounded_numbers",
     "FP8 numbers of gate or up that are rounded to the larger scale of the two"},
    {Loss::kFoldedScales, "folded_scales",
     "block scales that are rounded with the scale of their matrix in them", Refusal::kNobody},
    {Loss::kNarrowedScales, "narrowed_scales", "scales that are rounded to 16 bits",
     Refusal::kNobody},
    {Loss::kNanBlocks, "nan_blocks", "FP8 blocks whose numbers are NaN or too large and become NaN",
     Refusal::kAlways},
}};

}  // namespace

std::span<const LossInfo> loss_table() noexcept { return kLosses; }
const LossInfo& info(Loss loss) noexcept { return kLosses[static_cast<std::size_t>(loss)]; }

LossCounts& LossCounts::operator+=(const LossCounts& other) noexcept {
  for (std::size_t i = 0; i < kNumLosses; ++i) counts_[i] += other.counts_[i];
  return *this;
}

bool LossCounts::any() const noexcept {
  return std::ranges::any_of(counts_, [](std::uint64_t count) { return count > 0; });
}

std::optional<Loss> LossCounts::first_refused(bool is_strict) const noexcept {
  for (const Refusal refused : {Refusal::kAlways, Refusal::kStrict}) {
    if (refused == Refusal::kStrict && !is_strict) break;
    for (const LossInfo& row : kLosses) {
      if (row.refused == refused && of(row.loss) > 0) return row.loss;
    }
  }
  return std::nullopt;
}

void count_fates(const Fates& fates, const std::array<std::uint64_t, 256>& codes,
                 LossCounts& losses) noexcept {
  for (std::size_t code = 0; code < codes.size(); ++code) {
    if (fates[code]) losses.add(*fates[code], codes[code]);
  }
}

Fates fates_of_scaled_e4m3(float factor, Loss rounded) noexcept {
  Fates fates{};
  for (std::uint32_t code = 0; code < fates.size(); ++code) {
    const float scale = formats::decode_e4m3(static_cast<std::uint8_t>(code));
    if (std::isnan(scale) || scale == 0.0F) continue;
    const float product = scale * factor;
    const float made = formats::decode_e4m3(formats::encode_e4m3(product));
    // Exact: 4 bits of mantissa by 24.
    const double wanted = static_cast<double>(scale) * static_cast<double>(factor);
    if (std::fabs(product) > formats::kE4m3Max) {
      fates[code] = Loss::kSaturatedScales;
    } else if (made == 0.0F) {
      fates[code] = Loss::kFlushedScales;
    } else if (static_cast<double>(made) != wanted) {
      fates[code] = rounded;
    }
  }
  return fates;
}

layout::CodeCounts scale_codes_of(const LossRequest& request, const layout::MatrixRows& rows) {
  return request.scale_codes != nullptr ? *request.scale_codes
                                        : layout::count_codes(rows, request.pool);
}

}  // namespace lode::targets
