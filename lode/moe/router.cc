#include "lode/moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "lode/moe/choice.h"
#include "lode/moe/score.h"

namespace lode::moe {
namespace {

using families::RouterSpec;
using families::Score;

bool is_choice(std::int32_t id, std::size_t num_choices) noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < num_choices;
}

/// What the scratch holds. `picked` are the scores of the columns, 0 where no weight is due; it
/// takes the place of the choices, which are made by then.
struct Work {
  Doubles scores;
  Doubles choices;
  Doubles groups;
  Doubles picked;

  Work(const RouterSpec& spec, std::span<float> scratch) {
    const std::size_t num_choices = spec.num_choices();
    const std::size_t num_groups = 2 * std::size_t{spec.num_groups};
    const Doubles all(scratch, 2 * num_choices + num_groups);
    scores = all.part(0, num_choices);
    choices = all.part(num_choices, num_choices);
    groups = all.part(2 * num_choices, num_groups);
    picked = choices.part(0, spec.top_k);
  }
};

bool choose(const RouterSpec& spec, const RouteInput& input, const Work& work,
            std::span<std::int32_t> ids) noexcept {
  set_choices(input.logits, work.scores, input.bias, work.choices);
  exclude_groups(spec, !input.bias.empty(), work.choices, work.groups);
  const std::size_t chosen = choose_best(work.choices, ids);
  fill_up(chosen, ids);
  for (std::size_t column = 0; column < ids.size(); ++column) {
    const bool real = column < chosen;
    work.picked.set(column, real ? work.scores[static_cast<std::size_t>(ids[column])] : 0.0);
  }
  return chosen == ids.size();
}

bool take_fixed(const RouteInput& input, const Work& work, std::span<std::int32_t> ids) noexcept {
  bool sure = true;
  for (std::size_t column = 0; column < ids.size(); ++column) {
    const std::int32_t id = input.fixed_ids[column];
    const auto before = ids.first(column);
    const bool once = std::find(before.begin(), before.end(), id) == before.end();
    const bool usable = once && is_choice(id, input.logits.size());
    ids[column] = usable ? id : kNoExpert;
    work.picked.set(column, usable ? work.scores[static_cast<std::size_t>(id)] : 0.0);
    sure = sure && usable && std::isfinite(input.logits[static_cast<std::size_t>(id)]);
  }
  return sure;
}

/// The share of logit `top` in a softmax over those that are near it, itself included.
double share_of(double top, double near, Doubles logits) noexcept {
  double sum = 0.0;
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const double logit = logits[expert];
    if (!std::isfinite(logit)) continue;
    // 0 / 0 is near: both are 0.
    const bool far = (top - logit) / std::max(std::abs(logit), top) > 2.0 * near;
    if (!far) sum += exp_f64(logit - top);
  }
  return 1.0 / sum;
}

bool mix_sparsely(const RouterSpec& spec, const RouteInput& input, const Work& work,
                  std::span<std::int32_t> ids) noexcept {
  set_choices(input.logits, work.scores, {}, work.choices);
  std::array<double, 2> shares{};
  std::size_t chosen = 0;
  for (; chosen < std::min(ids.size(), shares.size()); ++chosen) {
    const std::size_t best = best_of(work.choices);
    if (best == work.choices.size()) break;
    shares[chosen] = share_of(work.choices[best], spec.near, work.choices);
    work.choices.set(best, -std::numeric_limits<double>::infinity());
    ids[chosen] = static_cast<std::int32_t>(best);
  }
  fill_up(chosen, ids);
  for (std::size_t column = 0; column < ids.size(); ++column) {
    work.picked.set(column, column < shares.size() ? shares[column] : 0.0);
  }
  return chosen == ids.size();
}

/// (sum of picked^power)^(1/power), by parts of the largest, so that no power underflows.
double norm_of(double power, Doubles picked) noexcept {
  double largest = 0.0;
  double sum = 0.0;
  for (std::size_t i = 0; i < picked.size(); ++i) {
    largest = std::max(largest, picked[i]);
    sum += picked[i];
  }
  if (power == 1.0 || !(largest > 0.0)) return sum;
  double powers = 0.0;
  for (std::size_t i = 0; i < picked.size(); ++i) powers += std::pow(picked[i] / largest, power);
  return largest * std::pow(powers, 1.0 / power);
}

void weigh(const RouterSpec& spec, const RouteInput& input, Doubles picked, RouteRow out) noexcept {
  double divisor = 1.0;
  if (spec.renormalise || spec.score == Score::kTopKSoftmax) {
    divisor = std::max(norm_of(spec.norm_power, picked) + spec.norm_add, spec.norm_floor);
    if (!(divisor > 0.0)) divisor = 1.0;
  }
  for (std::size_t column = 0; column < out.ids.size(); ++column) {
    double weight = picked[column] / divisor * double{spec.scaling};
    if (weight != 0.0 && !input.expert_scale.empty()) {
      weight *= double{input.expert_scale[static_cast<std::size_t>(out.ids[column])]};
    }
    out.weights[column] = static_cast<float>(weight);
  }
}

}  // namespace

std::size_t route_scratch_floats(const RouterSpec& spec) {
  const std::size_t numbers =
      2 * std::size_t{spec.num_choices()} + 2 * std::size_t{spec.num_groups};
  return numbers * Doubles::kFloats;
}

bool route_row(const RouterSpec& spec, const RouteInput& input, std::span<float> scratch,
               RouteRow out) noexcept {
  const Work work(spec, scratch);
  score_logits(spec.score, input.logits, work.scores);
  bool sure = false;
  if (!input.fixed_ids.empty()) {
    sure = take_fixed(input, work, out.ids);
  } else if (spec.score == Score::kSparseMixer) {
    sure = mix_sparsely(spec, input, work, out.ids);
  } else {
    sure = choose(spec, input, work, out.ids);
  }
  weigh(spec, input, work.picked, out);
  return sure;
}

void route_padding(RouteRow out) noexcept {
  std::fill(out.ids.begin(), out.ids.end(), kNoExpert);
  std::fill(out.weights.begin(), out.weights.end(), 0.0F);
}

float take_zero_experts(std::uint32_t num_experts, RouteRow row) noexcept {
  double sum = 0.0;
  for (std::size_t column = 0; column < row.ids.size(); ++column) {
    if (row.ids[column] < 0 || static_cast<std::uint32_t>(row.ids[column]) < num_experts) continue;
    sum += double{row.weights[column]};
    row.ids[column] = kNoExpert;
    row.weights[column] = 0.0F;
  }
  return static_cast<float>(sum);
}

Status check_expert_table(const RouterSpec& spec, std::span<const std::int32_t> table) {
  const std::size_t top_k = spec.top_k;
  const auto refused = [](std::string wanted, std::string found, std::size_t token) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "ids of experts by token",
                 .wanted = std::move(wanted),
                 .found = std::move(found),
                 .where = "token " + std::to_string(token)};
  };
  if (top_k == 0 || table.size() % top_k != 0) {
    return refused("num_experts_per_tok ids a token", std::to_string(table.size()) + " ids", 0);
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto before = table.subspan(i / top_k * top_k, i % top_k);
    const bool twice = std::find(before.begin(), before.end(), table[i]) != before.end();
    if (!twice && is_choice(table[i], spec.num_choices())) continue;
    return refused("different ids below " + std::to_string(spec.num_choices()),
                   std::to_string(table[i]), i / top_k);
  }
  return {};
}

}  // namespace lode::moe
