#include "lode/eplb/decision.h"

#include <algorithm>
#include <utility>

#include "lode/placement/balance.h"
#include "lode/placement/transfer_plan.h"

namespace lode::eplb {

using placement::ExpertMap;

Result<LayerDecision> decide(const LayerChoice& choice, const placement::Costs& costs,
                             const placement::Acceptance& rule) {
  const ExpertMap& now = *choice.now;
  const ExpertMap& next = *choice.next;
  LODE_TRY(const auto plan, placement::plan_transfer(now.physical_to_logical(),
                                                     next.physical_to_logical(), now.ranks()));
  LayerDecision made;
  made.layer = choice.layer;
  made.rows_before = placement::rank_loads(now, choice.rows);
  made.rows_after = placement::rank_loads(next, choice.rows);
  made.verdict = placement::judge_seconds(placement::layer_seconds(now, choice.rows, costs),
                                          placement::layer_seconds(next, choice.rows, costs),
                                          placement::transfer_seconds(plan, costs), rule);
  if (!made.verdict.accepted) return made;
  made.moved_records = placement::sent_records(plan);
  made.moved_bytes = made.moved_records * costs.expert_bytes;
  return made;
}

Decision summed(std::vector<LayerDecision> layers) {
  placement::Balance before, after;
  Decision decision;
  for (const LayerDecision& layer : layers) {
    const auto add = [](placement::Balance& sum, const std::vector<double>& rows) {
      const placement::Balance one = placement::balance_of_counts(rows, rows.size());
      sum.mean += one.mean;
      sum.max += one.max;
    };
    add(before, layer.rows_before);
    add(after, layer.verdict.accepted ? layer.rows_after : layer.rows_before);
    decision.accepted_layers += layer.verdict.accepted ? 1 : 0;
    decision.moved_records += layer.moved_records;
    decision.moved_bytes += layer.moved_bytes;
  }
  decision.balancedness_before = before.balancedness();
  decision.balancedness_after = after.balancedness();
  decision.layers = std::move(layers);
  return decision;
}

std::vector<std::size_t> in_order_of_gain(const Decision& decision) {
  std::vector<std::pair<double, std::size_t>> gains;
  for (const LayerDecision& layer : decision.layers) {
    if (!layer.verdict.accepted) continue;
    gains.emplace_back(layer.verdict.transfer_seconds - layer.verdict.saved_seconds, layer.layer);
  }
  std::ranges::sort(gains);
  std::vector<std::size_t> order;
  for (const auto& [gain, layer] : gains) order.push_back(layer);
  return order;
}

}  // namespace lode::eplb
