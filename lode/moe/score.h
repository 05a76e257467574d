#pragma once

#include <span>

#include "lode/families/router_spec.h"
#include "lode/moe/doubles.h"

namespace lode::moe {

/// e^x in f64 for x <= 709, within 2 ulp down to the smallest normal number, by plain operations:
/// the same bits on every machine.
double exp_f64(double x) noexcept;

/// Scores of a row in f64, so that neither rounding nor saturation makes two experts equal that are
/// not; 0 for a logit that is not finite. kTopKSoftmax and kSparseMixer: e^(logit - largest).
///
/// Shapes: logits, scores [num_choices].
void score_logits(families::Score score, std::span<const float> logits, Doubles scores) noexcept;

}  // namespace lode::moe
