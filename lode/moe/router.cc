#include "lode/moe/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lode/ops/exp.h"

namespace lode::moe {
namespace {

using families::RouterSpec;
using families::Score;
constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Scores of all experts; those of non-finite logits are 0 and are never chosen.
void score_all(Score score, std::span<const float> logits, std::span<float> scores) noexcept {
  float largest = kNever;
  for (const float logit : logits) {
    if (std::isfinite(logit)) largest = std::max(largest, logit);
  }
  float sum = 0.0F;
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const float logit = logits[expert];
    const bool finite = std::isfinite(logit);
    if (score == Score::kSigmoid) {
      scores[expert] = finite ? ops::sigmoid(logit) : 0.0F;
    } else {
      scores[expert] = finite ? ops::exp(logit - largest) : 0.0F;
    }
    sum += scores[expert];
  }
  if (score != Score::kSoftmax || !(sum > 0.0F)) return;
  for (float& value : scores) value /= sum;
}

/// What the choice is made on; kNever where an expert may not be chosen.
void choices_of(std::span<const float> logits, std::span<const float> scores,
                std::span<const float> bias, std::span<float> choices) noexcept {
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const float choice = bias.empty() ? logits[expert] : scores[expert] + bias[expert];
    const bool allowed = std::isfinite(logits[expert]) && std::isfinite(choice);
    choices[expert] = allowed ? choice : kNever;
  }
}

float group_score(std::span<const float> choices, bool two_best) noexcept {
  float best = kNever;
  float second = kNever;
  for (const float choice : choices) {
    if (choice > best) {
      second = best;
      best = choice;
    } else if (choice > second) {
      second = choice;
    }
  }
  // A group with a single candidate has no second score.
  return two_best && second > kNever ? best + second : best;
}

/// Index of the largest value above kNever, the lower one of equals; `values.size()` if none is.
std::size_t best_of(std::span<const float> values) noexcept {
  std::size_t best = values.size();
  float largest = kNever;
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (values[index] > largest) {
      largest = values[index];
      best = index;
    }
  }
  return best;
}

void exclude_groups(const RouterSpec& spec, bool biased, std::span<float> choices,
                    std::span<float> groups) noexcept {
  if (spec.num_groups <= 1 || spec.top_k_groups >= spec.num_groups) return;
  const std::size_t width = choices.size() / spec.num_groups;
  for (std::size_t group = 0; group < spec.num_groups; ++group) {
    groups[group] = group_score(choices.subspan(group * width, width), biased);
  }
  const std::span<float> kept = groups.subspan(spec.num_groups, spec.num_groups);
  std::fill(kept.begin(), kept.end(), 0.0F);
  for (std::uint32_t rank = 0; rank < spec.top_k_groups; ++rank) {
    const std::size_t group = best_of(groups.first(spec.num_groups));
    if (group == spec.num_groups) break;
    groups[group] = kNever;
    kept[group] = 1.0F;
  }
  for (std::size_t expert = 0; expert < choices.size(); ++expert) {
    if (kept[expert / width] == 0.0F) choices[expert] = kNever;
  }
}

/// The lowest id that the first `count` columns do not hold.
std::int32_t lowest_unused(std::span<const std::int32_t> used) noexcept {
  std::int32_t id = 0;
  while (std::find(used.begin(), used.end(), id) != used.end()) ++id;
  return id;
}

/// How many columns hold a real choice; the others are filled up.
std::size_t choose(std::span<float> choices, std::span<std::int32_t> ids) noexcept {
  std::size_t chosen = 0;
  for (; chosen < ids.size(); ++chosen) {
    const std::size_t best = best_of(choices);
    if (best == choices.size()) break;
    choices[best] = kNever;
    ids[chosen] = static_cast<std::int32_t>(best);
  }
  for (std::size_t column = chosen; column < ids.size(); ++column) {
    ids[column] = lowest_unused(ids.first(column));
  }
  return chosen;
}

void weigh(const RouterSpec& spec, std::span<const float> scores, std::size_t chosen,
           RouteRow out) noexcept {
  float sum = 0.0F;
  for (std::size_t column = 0; column < out.ids.size(); ++column) {
    const bool real = column < chosen;
    out.weights[column] = real ? scores[static_cast<std::size_t>(out.ids[column])] : 0.0F;
    sum += out.weights[column];
  }
  const bool divide = spec.renormalise || spec.score == Score::kTopKSoftmax;
  const float divisor = divide && sum > 0.0F ? sum : 1.0F;
  for (float& weight : out.weights) weight = weight / divisor * spec.scaling;
}

}  // namespace

std::size_t route_scratch_floats(const RouterSpec& spec) {
  return 2 * std::size_t{spec.num_experts} + 2 * std::size_t{spec.num_groups};
}

bool route_row(const RouterSpec& spec, std::span<const float> logits, std::span<const float> bias,
               std::span<float> scratch, RouteRow out) noexcept {
  const std::size_t num_experts = logits.size();
  const std::span<float> scores = scratch.first(num_experts);
  const std::span<float> choices = scratch.subspan(num_experts, num_experts);
  score_all(spec.score, logits, scores);
  choices_of(logits, scores, bias, choices);
  exclude_groups(spec, !bias.empty(), choices, scratch.subspan(2 * num_experts));
  const std::size_t chosen = choose(choices, out.ids);
  weigh(spec, scores, chosen, out);
  return chosen == out.ids.size();
}

void route_padding(RouteRow out) noexcept {
  std::fill(out.ids.begin(), out.ids.end(), kNoExpert);
  std::fill(out.weights.begin(), out.weights.end(), 0.0F);
}

}  // namespace lode::moe
