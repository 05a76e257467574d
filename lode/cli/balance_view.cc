#include "lode/cli/balance_view.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/table.h"

namespace lode::cli {
namespace {

constexpr std::size_t kShownLayers = 8;
constexpr std::size_t kShownLooks = 12;

std::string seconds_text(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

double balancedness(const engine::RankRows& rows, std::size_t layer) {
  return placement::balance_of_counts(rows.layer(layer), rows.ranks).balancedness();
}

// The layers that were worst before.
std::string layers_text(const engine::RankRows& before, const engine::RankRows& after) {
  std::vector<std::size_t> order(after.layers());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t l) { return balancedness(before, l); });
  order.resize(std::min(order.size(), kShownLayers));
  Table table({"layer", "before", "after", "fullest rank before", "after"}, {0, 1, 2, 3, 4});
  const auto fullest = [](const engine::RankRows& rows, std::size_t layer) {
    return fmt::format("{:.0f}", std::ranges::max(rows.layer(layer)));
  };
  for (const std::size_t layer : order)
    table.add({fmt::format("{}", layer), fmt::format("{:.4f}", balancedness(before, layer)),
               fmt::format("{:.4f}", balancedness(after, layer)), fullest(before, layer),
               fullest(after, layer)});
  const std::string head =
      after.layers() > kShownLayers
          ? fmt::format("the {} of {} layers that were worst:\n", kShownLayers, after.layers())
          : "";
  return head + table.text();
}

std::string moves_text(std::size_t sent, std::size_t copied, std::uint64_t bytes) {
  return fmt::format("{} sent between ranks ({}), {} copied within ranks", count_of(sent, "expert"),
                     human_bytes(bytes), copied);
}

}  // namespace

std::string plan_text(const engine::BalancePlan& plan, const engine::BalanceRequest& request) {
  const auto name = placement::policy_table()[static_cast<std::size_t>(request.policy)].name;
  std::string out = fmt::format(
      "{} with policy {}: {} on {}\n"
      "balancedness {:.4f} before, {:.4f} after (1 is even)\n"
      "moves        {}\n",
      count_of(plan.maps.size(), "layer"), name, count_of(request.shape.slots, "slot"),
      count_of(request.shape.ranks, "rank"), plan.before.balance().balancedness(),
      plan.after.balance().balancedness(),
      moves_text(plan.change.sent_records, plan.change.copied_records, plan.change.sent_bytes));
  if (plan.step_seconds_before > 0)
    out +=
        fmt::format("step         {} before, {} after, predicted\n",
                    seconds_text(plan.step_seconds_before), seconds_text(plan.step_seconds_after));
  if (plan.step_seconds_before > 0)
    out +=
        fmt::format("worth it     {}: {} saved in {:.0f} steps, {} to move\n",
                    plan.verdict.accepted ? "yes" : "no", seconds_text(plan.verdict.saved_seconds),
                    request.rule.steps, seconds_text(plan.verdict.transfer_seconds));
  return out + "\n" + layers_text(plan.before, plan.after);
}

std::string simulation_text(const engine::Simulation& simulation) {
  const double steps = static_cast<double>(std::max<std::size_t>(simulation.steps, 1));
  const auto taken = std::ranges::count_if(simulation.rebalancings,
                                           [](const auto& look) { return look.verdict.accepted; });
  std::string out = fmt::format(
      "{} of {}, {} looks at the load, {} plans taken\n"
      "balancedness {:.4f} without balancing, {:.4f} with (of single steps)\n"
      "moves        {}\n"
      "step         {} without, {} with, {} with what moves, predicted\n",
      count_of(simulation.steps, "step"), count_of(simulation.maps.size(), "layer"),
      simulation.rebalancings.size(), taken, simulation.balance_before.balancedness(),
      simulation.balance_after.balancedness(),
      moves_text(simulation.sent_records, simulation.copied_records, simulation.sent_bytes),
      seconds_text(simulation.seconds_before / steps),
      seconds_text(simulation.seconds_after / steps),
      seconds_text((simulation.seconds_after + simulation.moving_seconds) / steps));
  Table table({"after step", "taken", "predicted", "saves", "moving", "experts sent"},
              {0, 2, 3, 4, 5});
  const std::size_t shown = std::min(simulation.rebalancings.size(), kShownLooks);
  for (const engine::Rebalancing& look : std::span(simulation.rebalancings).first(shown))
    table.add({fmt::format("{}", look.step), look.verdict.accepted ? "yes" : "no",
               fmt::format("{:.4f}", look.predicted_balancedness),
               seconds_text(look.verdict.saved_seconds),
               seconds_text(look.verdict.transfer_seconds),
               fmt::format("{}", look.change.sent_records)});
  if (shown > 0) out += "\n" + table.text();
  if (shown < simulation.rebalancings.size())
    out +=
        fmt::format("and {} looks more; --json has all\n", simulation.rebalancings.size() - shown);
  return out;
}

}  // namespace lode::cli
