#include "lode/placement/load_decay.h"

#include <cmath>

#include "lode/base/check.h"
#include "lode/base/fmt.h"

namespace lode::placement {

Result<float> decay_of_half_life(double half_life_steps) {
  if (half_life_steps > 0) return static_cast<float>(std::exp2(-1.0 / half_life_steps));
  return Error{.code = Code::kUsage,
               .thing = "half-life of the load",
               .wanted = "a number of steps above 0",
               .found = fmt::format("{}", half_life_steps)};
}

void decay_and_add(std::span<float> sums, std::span<const std::uint32_t> counts,
                   float decay) noexcept {
  LODE_CHECK(sums.size() == counts.size(), "a count for every sum");
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] = sums[i] * decay + static_cast<float>(counts[i]);
}

void decay_and_add(std::span<float> sums, std::span<const float> counts, float decay) noexcept {
  LODE_CHECK(sums.size() == counts.size(), "a count for every sum");
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] * decay + counts[i];
}

double weight_of_steps(float decay, double steps) noexcept {
  const double kept = decay;
  return kept < 1 ? (1 - std::pow(kept, steps)) / (1 - kept) : steps;
}

}  // namespace lode::placement
