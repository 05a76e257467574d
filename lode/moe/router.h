#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/families/router_spec.h"

namespace lode::moe {

/// What stands where a token has no expert: padding rows carry it in every column.
inline constexpr std::int32_t kNoExpert = -1;

/// One row of router logits and what the layer has learned besides.
///
/// Shapes: logits [num_choices]; bias, expert_scale the same or empty; fixed_ids [top_k] or empty.
struct RouteInput {
  std::span<const float> logits;
  std::span<const float> bias;              // moves the choice only
  std::span<const float> expert_scale;      // multiplies the weight of each expert
  std::span<const std::int32_t> fixed_ids;  // of the token: no choice is made, only weights
};

/// What one row of router logits chose.
///
/// Shapes: ids, weights [top_k], by falling selection score, ties to the lower id.
struct RouteRow {
  std::span<std::int32_t> ids;
  std::span<float> weights;
};

/// Floats of scratch that `route_row` needs.
std::size_t route_scratch_floats(const families::RouterSpec& spec);

/// Chooses top_k experts for one token. One rule for every family, in f64 between the logits and
/// the weights:
///
/// - An expert whose logit (or biased score) is not finite is never chosen. Where fewer than top_k
///   are left, the lowest unused ids fill up at weight 0; the result is false then, since it means
///   a broken model or kernel.
/// - The choice is made on the logits where score and logit order alike (no selection bias); else
///   on score + bias. The bias never enters the weight. Ties: lower id.
/// - Groups: with a bias a group counts as the sum of its two best biased scores, without one as
///   its best; experts outside the best top_k_groups groups are out of the question, not zero.
/// - Weights: the score; divided by the norm of the chosen where `renormalise` (by 1 if that is
///   not positive); times `scaling`, times the expert's factor. kTopKSoftmax: softmax over the
///   chosen. kSparseMixer: for each of the two, the softmax over the logits near it.
/// - Fixed ids keep their columns. One that is no id or comes twice becomes kNoExpert, one whose
///   logit is not finite gets weight 0; the result is false for both.
///
/// Ids from num_experts on are zero experts.
bool route_row(const families::RouterSpec& spec, const RouteInput& input, std::span<float> scratch,
               RouteRow out) noexcept;

/// A row that stands for no token: every id kNoExpert, every weight 0.
void route_padding(RouteRow out) noexcept;

/// Takes ids from num_experts on out of a row: they become kNoExpert at weight 0. Gives the sum of
/// their weights, which is what the token itself counts.
float take_zero_experts(std::uint32_t num_experts, RouteRow row) noexcept;

/// Whether a table of ids by token can be routed by.
///
/// Shapes: table [tokens][top_k].
/// Errors: kInvalidSource naming the first token with an id that is none or comes twice.
Status check_expert_table(const families::RouterSpec& spec, std::span<const std::int32_t> table);

}  // namespace lode::moe
