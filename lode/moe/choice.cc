#include "lode/moe/choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lode::moe {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double group_score(Doubles choices, bool two_best) noexcept {
  double best = kNever;
  double second = kNever;
  for (std::size_t index = 0; index < choices.size(); ++index) {
    const double choice = choices[index];
    second = std::max(second, std::min(best, choice));
    best = std::max(best, choice);
  }
  // A group with a single candidate has no second score.
  return two_best && second > kNever ? best + second : best;
}

}  // namespace

void set_choices(std::span<const float> logits, Doubles scores, std::span<const float> bias,
                 Doubles choices) noexcept {
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const bool biased = !bias.empty();
    const double choice = biased ? scores[expert] + double{bias[expert]} : double{logits[expert]};
    const bool allowed = std::isfinite(logits[expert]) && std::isfinite(choice);
    choices.set(expert, allowed ? choice : kNever);
  }
}

void exclude_groups(const families::RouterSpec& spec, bool biased, Doubles choices,
                    Doubles groups) noexcept {
  if (spec.num_groups <= 1 || spec.top_k_groups >= spec.num_groups) return;
  const std::size_t width = choices.size() / spec.num_groups;
  const Doubles scores = groups.part(0, spec.num_groups);
  const Doubles kept = groups.part(spec.num_groups, spec.num_groups);
  for (std::size_t group = 0; group < spec.num_groups; ++group) {
    scores.set(group, group_score(choices.part(group * width, width), biased));
    kept.set(group, 0.0);
  }
  for (std::uint32_t rank = 0; rank < spec.top_k_groups; ++rank) {
    const std::size_t group = best_of(scores);
    if (group == spec.num_groups) break;
    scores.set(group, kNever);
    kept.set(group, 1.0);
  }
  for (std::size_t expert = 0; expert < choices.size(); ++expert) {
    if (kept[expert / width] == 0.0) choices.set(expert, kNever);
  }
}

std::size_t best_of(Doubles values) noexcept {
  std::size_t best = values.size();
  double largest = kNever;
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (values[index] > largest) {
      largest = values[index];
      best = index;
    }
  }
  return best;
}

std::size_t choose_best(Doubles choices, std::span<std::int32_t> ids) noexcept {
  for (std::size_t chosen = 0; chosen < ids.size(); ++chosen) {
    const std::size_t best = best_of(choices);
    if (best == choices.size()) return chosen;
    choices.set(best, kNever);
    ids[chosen] = static_cast<std::int32_t>(best);
  }
  return ids.size();
}

void fill_up(std::size_t chosen, std::span<std::int32_t> ids) noexcept {
  for (std::size_t column = chosen; column < ids.size(); ++column) {
    const std::span<const std::int32_t> used = ids.first(column);
    std::int32_t id = 0;
    while (std::find(used.begin(), used.end(), id) != used.end()) ++id;
    ids[column] = id;
  }
}

}  // namespace lode::moe
