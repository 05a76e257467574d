#include "lode/targets/marlin_losses.h"

#include <cmath>

#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "lode/layout/nvfp4_reconcile.h"

namespace lode::targets {

Fates fates_of_marlin_nvfp4(float factor, float ratio, const MarlinKernel& kernel) noexcept {
  const layout::ByteTable made = layout::nvfp4_marlin_bytes(factor, kernel.activations);
  Fates fates = fates_of_scaled_e4m3(ratio, Loss::kRoundedScales);
  for (std::uint32_t code = 0; code < fates.size(); ++code) {
    const auto stored = static_cast<std::uint8_t>(code);
    const float scale = formats::decode_e4m3(stored);
    if (scale < 0.0F) {
      fates[code] = Loss::kNegativeScales;
    } else if (scale > 0.0F && made[layout::rescaled_e4m3(stored, ratio)] == 0) {
      fates[code] = Loss::kFlushedScales;
    }
  }
  return fates;
}

Fates fates_of_marlin_mx(const MarlinKernel& kernel) noexcept {
  const layout::ByteTable kept = layout::mx_marlin_bytes(kernel.activations, false);
  const layout::ByteTable made =
      layout::mx_marlin_bytes(kernel.activations, kernel.narrow_activations);
  Fates fates{};
  for (std::uint32_t code = 0; code < formats::kE8m0Nan; ++code) {
    if (made[code] == formats::kE8m0Nan) {
      fates[code] = Loss::kOverflowedScales;
    } else if (kept[code] != code) {
      fates[code] = Loss::kFlushedScales;
    }
  }
  return fates;
}

}  // namespace lode::targets
