#include "lode/engine/balance_simulate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/placement/load_decay.h"
#include "lode/placement/step_clock.h"

namespace lode::engine {
namespace {

using placement::ExpertMap;

Error refused(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kUsage,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

// Traffic that is one matrix is that matrix at an even pace.
Result<std::size_t> steps_of(const BalanceLoads& traffic, const SimulationRequest& request) {
  if (!traffic.traffic.empty()) return traffic.traffic.size();
  const double steps =
      request.repeat > 0 ? static_cast<double>(request.repeat) : std::ceil(traffic.steps);
  const double most = kMaxSimulatedNumbers / static_cast<double>(traffic.loads.size());
  if (steps <= most) return static_cast<std::size_t>(steps);
  return refused("steps to simulate", fmt::format("at most {:.0f}", most),
                 fmt::format("{:.0f}", steps));
}

void add(placement::Balance& sum, const placement::Balance& more) {
  sum.mean += more.mean;
  sum.max += more.max;
}

void add(RankRows& sum, const RankRows& more) {
  if (sum.rows.empty()) sum = {more.ranks, std::vector<double>(more.rows.size())};
  for (std::size_t i = 0; i < sum.rows.size(); ++i) sum.rows[i] += more.rows[i];
}

class Simulator {
 public:
  Simulator(const BalanceLoads& traffic, std::vector<ExpertMap> start,
            const SimulationRequest& request, float decay)
      : request_(request),
        traffic_(traffic),
        start_(std::move(start)),
        decay_(decay),
        counted_{.layers = traffic.layers,
                 .experts = traffic.experts,
                 .loads = std::vector<float>(traffic.loads.size()),
                 .traffic = {}},
        clock_(request.interval, request.interval) {
    result_.maps = start_;
    if (!traffic.traffic.empty()) return;
    even_ = traffic.loads;
    for (float& one : even_) one = static_cast<float>(one / traffic.steps);
  }

  Result<Simulation> run(std::size_t steps) {
    for (std::size_t step = 0; step < steps; ++step) {
      const std::vector<float>& rows = traffic_.traffic.empty() ? even_ : traffic_.traffic[step];
      count(rows);
      placement::decay_and_add(counted_.loads, std::span<const float>(rows), decay_);
      if (!clock_.after_pass()) continue;
      counted_.steps = placement::weight_of_steps(decay_, static_cast<double>(step + 1));
      LODE_TRY_STATUS(rebalance(step));
    }
    result_.steps = steps;
    return std::move(result_);
  }

 private:
  void count(const std::vector<float>& rows) {
    const placement::Costs& costs = request_.plan.costs;
    const RankRows before = rank_rows(start_, rows);
    const RankRows after = rank_rows(result_.maps, rows);
    add(result_.before, before);
    add(result_.after, after);
    add(result_.balance_before, before.balance());
    add(result_.balance_after, after.balance());
    result_.balancedness_before.push_back(before.balance().balancedness());
    result_.balancedness_after.push_back(after.balance().balancedness());
    result_.seconds_before += predicted_step_seconds(start_, rows, costs);
    result_.seconds_after += predicted_step_seconds(result_.maps, rows, costs);
  }

  Status rebalance(std::size_t step) {
    LODE_TRY(BalancePlan plan, plan_balance(counted_, result_.maps, request_.plan));
    result_.rebalancings.push_back({.step = step,
                                    .verdict = plan.verdict,
                                    .change = plan.change,
                                    .predicted_balancedness = plan.after.balance().balancedness()});
    if (!plan.verdict.accepted) return {};
    result_.maps = std::move(plan.maps);
    result_.moving_seconds += plan.change.transfer_seconds;
    result_.sent_records += plan.change.sent_records;
    result_.copied_records += plan.change.copied_records;
    result_.sent_bytes += plan.change.sent_bytes;
    return {};
  }

  const SimulationRequest& request_;
  const BalanceLoads& traffic_;
  std::vector<ExpertMap> start_;
  float decay_;
  std::vector<float> even_;
  BalanceLoads counted_;
  placement::StepClock clock_;
  Simulation result_;
};

Status check_start(std::span<const ExpertMap> start, const BalanceLoads& traffic,
                   const placement::Shape& shape) {
  if (start.size() != traffic.layers)
    return refused("layers of the maps in use", fmt::format("{}", traffic.layers),
                   fmt::format("{}", start.size()));
  for (const ExpertMap& map : start)
    if (map.experts() != traffic.experts || map.slots() != shape.slots ||
        map.ranks() != shape.ranks)
      return refused("maps in use",
                     fmt::format("{} experts in {} slots of {} ranks", traffic.experts, shape.slots,
                                 shape.ranks),
                     fmt::format("{} experts in {} slots of {} ranks", map.experts(), map.slots(),
                                 map.ranks()));
  return {};
}

json::Array numbers(std::span<const double> values) {
  json::Array list;
  for (const double value : values) list.emplace_back(value);
  return list;
}

json::Value side(const placement::Balance& balance, const RankRows& rows, double seconds,
                 std::size_t steps) {
  return json::object({{"balancedness", balance.balancedness()},
                       {"seconds", seconds},
                       {"step_seconds", steps > 0 ? seconds / static_cast<double>(steps) : 0.0},
                       {"rows", as_json(rows)}});
}

}  // namespace

Result<Simulation> simulate_balance(const BalanceLoads& traffic, std::span<const ExpertMap> start,
                                    const SimulationRequest& request) {
  LODE_TRY_STATUS(check_costs(request.plan.costs));
  LODE_TRY_STATUS(check_rule(request.plan.rule));
  const placement::Shape& shape = request.plan.shape;
  LODE_TRY_STATUS(placement::check_shape(shape, traffic.experts));
  if (request.interval < 1)
    return refused("interval of rebalancing", "one step or more",
                   fmt::format("{}", request.interval));
  LODE_TRY(const float decay, placement::decay_of_half_life(request.half_life));
  LODE_TRY(const std::size_t steps, steps_of(traffic, request));
  std::vector<ExpertMap> maps(start.begin(), start.end());
  if (maps.empty()) {
    LODE_TRY(const ExpertMap first,
             placement::initial_map(traffic.experts, shape.slots, shape.ranks));
    maps.assign(traffic.layers, first);
  }
  LODE_TRY_STATUS(check_start(maps, traffic, shape));
  SimulationRequest whole = request;
  whole.plan.rule.steps = static_cast<double>(request.interval);
  return Simulator(traffic, std::move(maps), whole, decay).run(steps);
}

json::Value as_json(const Simulation& simulation) {
  json::Array looks;
  for (const Rebalancing& look : simulation.rebalancings) {
    looks.emplace_back(json::object({{"step", std::uint64_t{look.step}},
                                     {"accepted", look.verdict.accepted},
                                     {"saved_seconds", look.verdict.saved_seconds},
                                     {"predicted_balancedness", look.predicted_balancedness},
                                     {"change", as_json(look.change)}}));
  }
  return json::object({{"steps", std::uint64_t{simulation.steps}},
                       {"before", side(simulation.balance_before, simulation.before,
                                       simulation.seconds_before, simulation.steps)},
                       {"after", side(simulation.balance_after, simulation.after,
                                      simulation.seconds_after, simulation.steps)},
                       {"moving_seconds", simulation.moving_seconds},
                       {"sent_records", std::uint64_t{simulation.sent_records}},
                       {"copied_records", std::uint64_t{simulation.copied_records}},
                       {"sent_bytes", simulation.sent_bytes},
                       {"rebalancings", std::move(looks)},
                       {"balancedness_by_step",
                        json::object({{"before", numbers(simulation.balancedness_before)},
                                      {"after", numbers(simulation.balancedness_after)}})}});
}

}  // namespace lode::engine
