#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/families/model_spec.h"

namespace lode::moe {

/// What stands where a token has no expert: padding rows carry it in every column.
inline constexpr std::int32_t kNoExpert = -1;

/// What one row of router logits chose.
///
/// Shapes: ids, weights [top_k], by falling selection score, ties to the lower id.
struct RouteRow {
  std::span<std::int32_t> ids;
  std::span<float> weights;
};

/// Floats of scratch that `route_row` needs.
std::size_t route_scratch_floats(const families::RouterSpec& spec);

/// Chooses top_k experts for one token. One rule for every family:
///
/// - An expert whose logit (or biased score) is not finite is never chosen. Where fewer than top_k
///   are left, the lowest unused ids fill up at weight 0; the result is false then, since it means
///   a broken model or kernel.
/// - The choice is made on the logits where score and logit order alike (no selection bias), so
///   that rounding of scores makes no false ties; else on score + bias. The bias never enters the
///   weight. Ties: lower id.
/// - Groups: with a bias a group counts as the sum of its two best biased scores, without one as
/// its
///   best; experts outside the best top_k_groups groups are out of the question, not zero.
/// - Weights: the score; divided by the sum over the chosen where `renormalise` (by 1 if that is
/// not
///   positive); times `scaling` last. kTopKSoftmax: softmax over the chosen.
///
/// Shapes: logits [num_experts]; bias [num_experts] or empty; scratch route_scratch_floats.
bool route_row(const families::RouterSpec& spec, std::span<const float> logits,
               std::span<const float> bias, std::span<float> scratch, RouteRow out) noexcept;

/// A row that stands for no token: every id kNoExpert, every weight 0.
void route_padding(RouteRow out) noexcept;

}  // namespace lode::moe
