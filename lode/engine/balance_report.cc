#include "lode/engine/balance_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

using placement::ExpertMap;

Error usage(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kUsage,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

Status check_alike(const ExpertMap& from, const ExpertMap& to) {
  if (from.experts() != to.experts())
    return usage("experts of the maps in use", fmt::format("{}", to.experts()),
                 fmt::format("{}", from.experts()));
  if (from.slots_per_rank() == to.slots_per_rank()) return {};
  return usage("slots a rank of the maps in use", fmt::format("{}", to.slots_per_rank()),
               fmt::format("{}", from.slots_per_rank()));
}

Status add_layer(MapChange& change, const ExpertMap& from, const ExpertMap& to,
                 const placement::Costs& costs) {
  LODE_TRY_STATUS(check_alike(from, to));
  const std::size_t ranks = std::max(from.ranks(), to.ranks());
  LODE_TRY(const ExpertMap old_map, grown(from, ranks));
  LODE_TRY(const ExpertMap new_map, grown(to, ranks));
  LODE_TRY(const auto plan, placement::plan_transfer(old_map.physical_to_logical(),
                                                     new_map.physical_to_logical(), ranks));
  for (const placement::RankTransfer& rank : plan) {
    const std::size_t copies = rank.local_copies.size() + rank.duplicates.size();
    change.copied_records += copies;
    change.changed_slots += copies + rank.receives.size();
    change.buffer_records = std::max(change.buffer_records, placement::buffered_records(rank));
  }
  change.sent_records += placement::sent_records(plan);
  change.transfer_seconds += placement::transfer_seconds(plan, costs);
  return {};
}

json::Array numbers(std::span<const double> values) {
  json::Array list;
  for (const double value : values) list.emplace_back(value);
  return list;
}

}  // namespace

RankRows rank_rows(std::span<const ExpertMap> maps, std::span<const float> loads) {
  RankRows result;
  if (maps.empty()) return result;
  result.ranks = maps.front().ranks();
  const std::size_t experts = maps.front().experts();
  for (std::size_t layer = 0; layer < maps.size(); ++layer) {
    const auto rows = rank_loads(maps[layer], loads.subspan(layer * experts, experts));
    result.rows.insert(result.rows.end(), rows.begin(), rows.end());
  }
  return result;
}

Result<MapChange> change_between(std::span<const ExpertMap> from, std::span<const ExpertMap> to,
                                 const placement::Costs& costs) {
  if (from.size() != to.size())
    return usage("layers of the maps in use", fmt::format("{}", to.size()),
                 fmt::format("{}", from.size()));
  MapChange change;
  for (std::size_t layer = 0; layer < to.size(); ++layer)
    LODE_TRY_STATUS(add_layer(change, from[layer], to[layer], costs));
  const auto bytes = checked_mul(change.sent_records, costs.expert_bytes);
  if (!bytes)
    return usage("bytes of an expert", "what 64 bits count",
                 fmt::format("{} for each of {} records", costs.expert_bytes, change.sent_records));
  change.sent_bytes = *bytes;
  return change;
}

Status check_costs(const placement::Costs& costs) {
  const auto check = [](std::string_view thing, double value, bool speed) -> Status {
    if (std::isfinite(value) && (speed ? value > 0 : value >= 0)) return {};
    return usage(std::string(thing), speed ? "a number above 0" : "a number from 0 on",
                 fmt::format("{}", value));
  };
  LODE_TRY_STATUS(check("time of a row", costs.seconds_per_row, false));
  LODE_TRY_STATUS(check("time of an expert", costs.seconds_per_expert, false));
  LODE_TRY_STATUS(check("time of a layer", costs.seconds_per_layer, false));
  LODE_TRY_STATUS(check("speed of sending", costs.bytes_per_second, true));
  return check("speed of copying", costs.copy_bytes_per_second, true);
}

Status check_rule(const placement::Acceptance& rule) {
  for (const auto& [thing, value] :
       {std::pair("steps that a plan would stay", rule.steps), {"threshold", rule.threshold}}) {
    if (!(value >= 0)) return usage(thing, "a number from 0 on", fmt::format("{}", value));
  }
  return {};
}

double predicted_step_seconds(std::span<const ExpertMap> maps, std::span<const float> loads,
                              const placement::Costs& costs) {
  double seconds = 0;
  for (std::size_t layer = 0; layer < maps.size(); ++layer) {
    const std::size_t experts = maps[layer].experts();
    seconds +=
        placement::layer_seconds(maps[layer], loads.subspan(layer * experts, experts), costs);
  }
  return seconds;
}

Result<BalancePlan> plan_balance(const BalanceLoads& loads, std::span<const ExpertMap> current,
                                 const BalanceRequest& request) {
  LODE_TRY_STATUS(check_costs(request.costs));
  LODE_TRY_STATUS(check_rule(request.rule));
  LODE_TRY_STATUS(placement::check_shape(request.shape, loads.experts));
  LODE_TRY(const ExpertMap first,
           placement::initial_map(loads.experts, request.shape.slots, request.shape.ranks));
  const std::vector<ExpertMap> initial(loads.layers, first);
  // Without maps in use `best` still may not be worse than the initial ones, and the published
  // policy gives its own map to the slot.
  const bool free = current.empty() && request.policy != placement::Policy::kBest;
  if (current.empty()) current = initial;
  const auto known = free ? std::span<const ExpertMap>() : current;
  BalancePlan made;
  const placement::PlanInput input{
      .load = loads.loads, .experts = loads.experts, .shape = request.shape, .current = known};
  const auto start = std::chrono::steady_clock::now();
  LODE_TRY(made.maps, placement::plan(request.policy, input));
  const auto taken = std::chrono::steady_clock::now() - start;
  made.planning_us = std::chrono::duration_cast<std::chrono::microseconds>(taken).count();
  LODE_TRY(made.change, change_between(current, made.maps, request.costs));
  made.before = rank_rows(current, loads.loads);
  made.after = rank_rows(made.maps, loads.loads);
  std::vector<float> step(loads.loads);
  for (float& one : step) one = static_cast<float>(one / loads.steps);
  made.step_seconds_before = predicted_step_seconds(current, step, request.costs);
  made.step_seconds_after = predicted_step_seconds(made.maps, step, request.costs);
  made.verdict = placement::judge_seconds(made.step_seconds_before, made.step_seconds_after,
                                          made.change.transfer_seconds, request.rule);
  return made;
}

json::Value as_json(const RankRows& rows) {
  json::Array layers;
  for (std::size_t layer = 0; layer < rows.layers(); ++layer) {
    const placement::Balance balance = placement::balance_of_counts(rows.layer(layer), rows.ranks);
    layers.emplace_back(json::object({{"layer", std::uint64_t{layer}},
                                      {"balancedness", balance.balancedness()},
                                      {"mean_rows", balance.mean},
                                      {"max_rows", balance.max},
                                      {"rank_rows", numbers(rows.layer(layer))}}));
  }
  const placement::Balance all = rows.balance();
  return json::object({{"balancedness", all.balancedness()},
                       {"mean_rows", all.mean},
                       {"max_rows", all.max},
                       {"layers", std::move(layers)}});
}

json::Value as_json(const MapChange& change) {
  return json::object({{"changed_slots", std::uint64_t{change.changed_slots}},
                       {"sent_records", std::uint64_t{change.sent_records}},
                       {"copied_records", std::uint64_t{change.copied_records}},
                       {"sent_bytes", change.sent_bytes},
                       {"buffer_records", std::uint64_t{change.buffer_records}},
                       {"transfer_seconds", change.transfer_seconds}});
}

json::Value as_json(const BalancePlan& plan) {
  return json::object({{"before", as_json(plan.before)},
                       {"after", as_json(plan.after)},
                       {"change", as_json(plan.change)},
                       {"step_seconds_before", plan.step_seconds_before},
                       {"step_seconds_after", plan.step_seconds_after},
                       {"saved_seconds", plan.verdict.saved_seconds},
                       {"transfer_seconds", plan.verdict.transfer_seconds},
                       {"worth_it", plan.verdict.accepted},
                       {"planning_us", plan.planning_us}});
}

}  // namespace lode::engine
