#include "lode/placement/accept.h"

#include <algorithm>
#include <vector>

namespace lode::placement {

double transfer_seconds(std::span<const RankTransfer> plan, const Costs& costs) noexcept {
  double slowest = 0;
  const auto bytes = static_cast<double>(costs.expert_bytes);
  for (const RankTransfer& rank : plan) {
    const auto wire = static_cast<double>(std::max(rank.sends.size(), rank.receives.size()));
    const auto copies = static_cast<double>(rank.local_copies.size() + rank.duplicates.size());
    slowest = std::max(slowest, wire * bytes / costs.bytes_per_second +
                                    copies * bytes / costs.copy_bytes_per_second);
  }
  return slowest;
}

double layer_seconds(const ExpertMap& map, std::span<const float> rows,
                     const Costs& costs) noexcept {
  std::vector<double> busy(map.ranks());
  for (std::size_t e = 0; e < map.experts(); ++e) {
    const auto slots = map.slots_of(e);
    const double share = static_cast<double>(rows[e]) / static_cast<double>(slots.size());
    // A replica that gets less than a row a step is in use in so many steps.
    const double cost =
        share * costs.seconds_per_row + std::min(share, 1.0) * costs.seconds_per_expert;
    for (const std::int32_t slot : slots) busy[map.rank_of(static_cast<std::size_t>(slot))] += cost;
  }
  return std::ranges::max(busy) + costs.seconds_per_layer;
}

Verdict judge_seconds(double step_seconds_before, double step_seconds_after,
                      double transfer_seconds, const Acceptance& rule) noexcept {
  const double saved = (step_seconds_before - step_seconds_after) * std::max(rule.steps, 0.0);
  return {.accepted = saved > 0 && saved > rule.threshold * transfer_seconds,
          .saved_seconds = saved,
          .transfer_seconds = transfer_seconds};
}

Verdict judge(double max_rows_before, double max_rows_after, double transfer_seconds,
              const Costs& costs, const Acceptance& rule) noexcept {
  return judge_seconds(max_rows_before * costs.seconds_per_row,
                       max_rows_after * costs.seconds_per_row, transfer_seconds, rule);
}

}  // namespace lode::placement
