#pragma once

#include <cstdint>
#include <span>

#include "lode/base/result.h"

namespace lode::placement {

/// What remains of a count after one step, so that half of it remains after `half_life_steps`. An
/// infinite half-life is 1: plain sums.
///
/// Errors: kUsage for a half-life that is no number above 0.
Result<float> decay_of_half_life(double half_life_steps);

/// sums = sums * decay + counts: the load that planning reads, after one more step.
///
/// Shapes:  sums, counts of one length.
void decay_and_add(std::span<float> sums, std::span<const std::uint32_t> counts,
                   float decay) noexcept;
void decay_and_add(std::span<float> sums, std::span<const float> counts, float decay) noexcept;

/// How many steps of steady traffic weigh as much as such a sum after `steps` of them: its unit
/// when a load is turned back into load a step.
double weight_of_steps(float decay, double steps) noexcept;

}  // namespace lode::placement
