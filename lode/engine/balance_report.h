#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/engine/balance_files.h"
#include "lode/json/json.h"
#include "lode/placement/accept.h"
#include "lode/placement/balance.h"
#include "lode/placement/policies.h"

namespace lode::engine {

/// Rows of every rank in every layer.
struct RankRows {
  std::size_t ranks = 1;
  std::vector<double> rows;  // [layers, ranks]

  std::size_t layers() const noexcept { return rows.size() / ranks; }
  std::span<const double> layer(std::size_t index) const noexcept {
    return std::span(rows).subspan(index * ranks, ranks);
  }
  placement::Balance balance() const { return placement::balance_of_counts(rows, ranks); }
};

/// Shapes:  maps [layers]; loads [layers, experts].
RankRows rank_rows(std::span<const placement::ExpertMap> maps, std::span<const float> loads);

/// What changing from one set of maps to another moves.
struct MapChange {
  std::size_t changed_slots = 0;
  std::size_t sent_records = 0;    // between ranks
  std::size_t copied_records = 0;  // within ranks
  std::uint64_t sent_bytes = 0;
  std::size_t buffer_records = 0;  // that the busiest rank needs for its busiest layer
  double transfer_seconds = 0;     // layer after layer
};

/// Where the ranks of two maps differ in number, the smaller one counts as grown by empty ranks.
///
/// Errors: kUsage where maps differ in layers, experts or slots a rank.
Result<MapChange> change_between(std::span<const placement::ExpertMap> from,
                                 std::span<const placement::ExpertMap> to,
                                 const placement::Costs& costs);

/// What is asked of `lode balance plan`.
struct BalanceRequest {
  placement::Policy policy = placement::Policy::kBest;
  placement::Shape shape{};
  placement::Costs costs{};
  placement::Acceptance rule{};
};

/// A plan and what it is worth.
struct BalancePlan {
  std::vector<placement::ExpertMap> maps;
  RankRows before;  // of the current maps, or of the initial ones
  RankRows after;
  MapChange change;
  placement::Verdict verdict;
  double step_seconds_before = 0;  // predicted
  double step_seconds_after = 0;
  std::int64_t planning_us = 0;  // what planning itself took, on one thread
};

/// Plans from loads and the maps in use. No maps are the initial ones; then ranks and slots are
/// named as the policy itself names them, but for `best`, which compares with the initial maps.
///
/// Errors: as `placement::plan` and `change_between`; kUsage for costs that are below 0 or none.
Result<BalancePlan> plan_balance(const BalanceLoads& loads,
                                 std::span<const placement::ExpertMap> current,
                                 const BalanceRequest& request);

/// Predicted seconds of the experts of one step: in each layer the slowest rank, whose rows cost
/// and whose experts in use cost, and what a layer costs whatever is in it.
///
/// Shapes:  maps [layers]; loads [layers, experts], of one step.
double predicted_step_seconds(std::span<const placement::ExpertMap> maps,
                              std::span<const float> loads, const placement::Costs& costs);

/// Errors: kUsage naming a cost that is below 0, infinite, or a speed that is 0.
Status check_costs(const placement::Costs& costs);

/// Errors: kUsage for steps or a threshold that are below 0 or no number.
Status check_rule(const placement::Acceptance& rule);

json::Value as_json(const RankRows& rows);
json::Value as_json(const MapChange& change);
json::Value as_json(const BalancePlan& plan);

}  // namespace lode::engine
