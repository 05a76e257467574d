#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/engine/balance_report.h"

namespace lode::engine {

/// What is asked of `lode balance simulate`: when to rebalance besides what to plan for.
struct SimulationRequest {
  BalanceRequest plan{};
  std::int64_t interval = 50;  // steps between two looks; the first look comes after a quarter
  double half_life = 25;       // steps after which a count weighs half
  std::size_t repeat = 0;      // steps, where the traffic is one matrix; 0: as many as it sums
};

/// A look at the load, and what came of it.
struct Rebalancing {
  std::size_t step = 0;  // after which it was
  placement::Verdict verdict;
  MapChange change;
  double predicted_balancedness = 0;  // of the new maps on the load that was counted
};

/// Traffic step by step, with the maps it began with ("before") and with balancing ("after"). What
/// moves is charged whole to its step, as if nothing ran meanwhile. A load is split evenly over an
/// expert's replicas.
struct Simulation {
  std::size_t steps = 0;
  RankRows before;  // summed over steps
  RankRows after;
  placement::Balance balance_before;  // each step's and layer's slowest rank, not that of the sums
  placement::Balance balance_after;
  double seconds_before = 0;
  double seconds_after = 0;  // without moving
  double moving_seconds = 0;
  std::size_t sent_records = 0;
  std::size_t copied_records = 0;
  std::uint64_t sent_bytes = 0;
  std::vector<double> balancedness_before;  // step by step
  std::vector<double> balancedness_after;
  std::vector<Rebalancing> rebalancings;
  std::vector<placement::ExpertMap> maps;  // at the end
};

/// The most steps times numbers of a step that a simulation runs over.
inline constexpr double kMaxSimulatedNumbers = 1e10;

/// Errors: as `plan_balance`; kUsage for an interval below 1, a half-life that is none, and more
/// steps than kMaxSimulatedNumbers allows.
Result<Simulation> simulate_balance(const BalanceLoads& traffic,
                                    std::span<const placement::ExpertMap> start,
                                    const SimulationRequest& request);

json::Value as_json(const Simulation& simulation);

}  // namespace lode::engine
