#include "lode/engine/balance_simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "lode/engine/balance_traffic.h"

namespace lode::engine {
namespace {

using placement::ExpertMap;
using placement::Policy;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(BalanceTraffic, IsTheSameForTheSameSeedOnly) {
  TrafficSpec spec{.kind = TrafficKind::kLogNormal, .layers = 2, .experts = 8, .steps = 3};
  const auto one = make_traffic(spec), again = make_traffic(spec);
  spec.seed = 2;
  const auto other = make_traffic(spec);
  ASSERT_TRUE(one && again && other);
  EXPECT_EQ(one->traffic, again->traffic);
  EXPECT_NE(one->traffic, other->traffic);
}

// A count of n rows scatters by sqrt(n); 8 deviations of the sum of all experts' counts.
TEST(BalanceTraffic, HasAboutAsManyRowsAsItSays) {
  for (const TrafficKindInfo& kind : traffic_kinds()) {
    const auto traffic = make_traffic(
        {.kind = kind.kind, .layers = 1, .experts = 16, .steps = 50, .rows_per_step = 10000});
    ASSERT_TRUE(traffic) << kind.name;
    const double sum = std::accumulate(traffic->loads.begin(), traffic->loads.end(), 0.0);
    EXPECT_NEAR(sum, 500000, 8 * std::sqrt(500000)) << kind.name;
  }
}

TEST(BalanceTraffic, ShiftsItsHotExperts) {
  const auto traffic = make_traffic({.kind = TrafficKind::kShifting,
                                     .layers = 1,
                                     .experts = 64,
                                     .steps = 20,
                                     .hot_experts = 2,
                                     .shift_every = 10});
  ASSERT_TRUE(traffic);
  const auto hottest = [&](std::size_t step) {
    const auto& rows = traffic->traffic[step];
    std::vector<std::size_t> order(rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return rows[a] > rows[b]; });
    return std::set(order.begin(), order.begin() + 2);
  };
  EXPECT_EQ(hottest(0), hottest(9));
  EXPECT_EQ(hottest(10), hottest(19));
  EXPECT_NE(hottest(9), hottest(10));
}

TEST(BalanceTraffic, RefusesASettingByItsName) {
  const struct {
    TrafficSpec spec;
    const char* message;
  } bad[] = {
      {{.layers = 0}, "layers of the traffic"},
      {{.experts = 0}, "experts of the traffic"},
      {{.steps = 0}, "steps of the traffic"},
      {{.steps = std::size_t{1} << 40}, "steps of the traffic"},
      {{.layers = 100000, .experts = 100000}, "counts of the traffic"},
      {{.layers = 1000, .experts = 1000, .steps = 1000}, "counts of the traffic"},
      {{.rows_per_step = 0}, "rows of the traffic"},
      {{.rows_per_step = NAN}, "rows of the traffic"},
      {{.exponent = NAN}, "exponent of the traffic"},
      {{.sigma = 1e9}, "sigma of the traffic"},
      {{.hot_share = 1.5}, "hot share of the traffic"},
      {{.shift_every = 0}, "steps between shifts of the traffic"},
      {{.kind = TrafficKind::kShifting, .hot_experts = 0}, "hot experts of the traffic"},
      {{.kind = TrafficKind::kShifting, .experts = 4, .hot_experts = 4}, "hot experts"},
  };
  for (const auto& one : bad) {
    const auto traffic = make_traffic(one.spec);
    ASSERT_FALSE(traffic) << one.message;
    EXPECT_EQ(traffic.error().code, Code::kUsage);
    EXPECT_THAT(to_string(traffic.error()), HasSubstr(one.message));
  }
  EXPECT_THAT(to_string(traffic_kind_by_name("even").error()), HasSubstr("zipf, log-normal"));
}

const placement::Costs kCosts{.seconds_per_row = 0.5,
                              .seconds_per_expert = 10,
                              .seconds_per_layer = 1,
                              .bytes_per_second = 100,
                              .copy_bytes_per_second = 1000,
                              .expert_bytes = 200};

// By hand. Rank 0: 8 rows of expert 0 and 2 of expert 1: 5 s, and two experts: 20 s. Rank 1: half a
// row of expert 2 in each of two slots: 0.5 s and 10 s. The layer 1 s.
TEST(BalanceReport, PredictsAStepByItsSlowestRank) {
  const auto map = ExpertMap::make({0, 1, 2, 2}, 3, 2);
  ASSERT_TRUE(map);
  const std::vector<float> rows{8, 2, 1};
  EXPECT_EQ(predicted_step_seconds(std::span(&*map, 1), rows, kCosts), 26);
}

// moe_runner_eplb 5.4 A: one expert goes from rank 0 to rank 1; 121 rows become 105.5.
TEST(BalanceReport, SaysWhatAPlanIsWorthAndMoves) {
  const BalanceLoads loads{.layers = 1, .experts = 4, .loads = {90, 30, 61, 20}, .traffic = {}};
  placement::Costs costs = kCosts;
  costs.seconds_per_expert = costs.seconds_per_layer = 0;
  const BalanceRequest request{.policy = Policy::kDeepSeek,
                               .shape = {.slots = 6, .ranks = 2},
                               .costs = costs,
                               .rule = {.steps = 2}};
  const auto published = plan_balance(loads, {}, request);
  ASSERT_TRUE(published) << to_string(published.error());
  EXPECT_THAT(published->maps.front().physical_to_logical(), ElementsAre(0, 2, 1, 0, 2, 3));
  const auto initial = placement::initial_map(4, 6, 2);
  ASSERT_TRUE(initial);
  const auto plan = plan_balance(loads, std::span(&*initial, 1), request);
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_THAT(plan->maps.front().physical_to_logical(), ElementsAre(0, 1, 2, 3, 0, 2));
  EXPECT_EQ(plan->change.sent_records, 1u);
  EXPECT_EQ(plan->change.sent_bytes, 200u);
  EXPECT_EQ(plan->change.transfer_seconds, 2);
  EXPECT_EQ(plan->step_seconds_before, 60.5);
  EXPECT_EQ(plan->step_seconds_after, 52.75);
  EXPECT_EQ(plan->verdict.saved_seconds, 15.5);
  EXPECT_TRUE(plan->verdict.accepted);
}

TEST(BalanceReport, RefusesMapsInUseThatDoNotFit) {
  const BalanceLoads loads{.layers = 1, .experts = 2, .loads = {1, 2}, .traffic = {}};
  const auto wide = ExpertMap::make({0, 1, 0, 1}, 2, 1);
  ASSERT_TRUE(wide);
  const auto plan = plan_balance(loads, std::span(&*wide, 1), {.shape = {.slots = 2, .ranks = 1}});
  ASSERT_FALSE(plan);
  EXPECT_THAT(to_string(plan.error()), HasSubstr("slots a rank of the maps in use"));
}

TEST(BalanceReport, RefusesCostsByName) {
  const auto message = [](placement::Costs costs) {
    const Status status = check_costs(costs);
    return status ? std::string() : to_string(status.error());
  };
  EXPECT_EQ(message(kCosts), "");
  EXPECT_THAT(message({.seconds_per_row = -1}), HasSubstr("time of a row"));
  EXPECT_THAT(message({.seconds_per_expert = NAN}), HasSubstr("time of an expert"));
  EXPECT_THAT(message({.seconds_per_layer = INFINITY}), HasSubstr("time of a layer"));
  EXPECT_THAT(message({.bytes_per_second = 0}), HasSubstr("speed of sending"));
  EXPECT_THAT(message({.copy_bytes_per_second = -2}), HasSubstr("speed of copying"));
}

SimulationRequest request_for(std::size_t slots, std::size_t ranks) {
  SimulationRequest request;
  request.plan.shape = {.slots = slots, .ranks = ranks};
  request.plan.costs = {.seconds_per_row = 1e-3, .expert_bytes = 1000};
  return request;
}

// A million rows a step, 125,000 a rank: counting scatters by less than 1 %.
TEST(BalanceSimulation, RecoversFromAShiftOfTheHotSet) {
  const auto traffic = make_traffic({.kind = TrafficKind::kShifting,
                                     .layers = 4,
                                     .experts = 32,
                                     .steps = 300,
                                     .rows_per_step = 1e6,
                                     .shift_every = 150});
  ASSERT_TRUE(traffic);
  const auto simulation = simulate_balance(*traffic, {}, request_for(40, 8));
  ASSERT_TRUE(simulation) << to_string(simulation.error());
  // Long after the last look before the shift, right after it, and at the end.
  EXPECT_GT(simulation->balancedness_after[149], 0.9);
  EXPECT_LT(simulation->balancedness_after[150], 0.8);
  EXPECT_GT(simulation->balancedness_after[299], 0.9);
  EXPECT_LT(simulation->seconds_after, simulation->seconds_before);
}

TEST(BalanceSimulation, MovesNothingWhereMovingCostsMore) {
  const auto traffic = make_traffic({.layers = 2, .experts = 16, .steps = 60});
  ASSERT_TRUE(traffic);
  SimulationRequest request = request_for(16, 4);
  request.plan.costs.expert_bytes = 1000000000000;
  const auto simulation = simulate_balance(*traffic, {}, request);
  ASSERT_TRUE(simulation);
  EXPECT_FALSE(simulation->rebalancings.empty());
  EXPECT_EQ(simulation->sent_bytes, 0u);
  EXPECT_EQ(simulation->seconds_after, simulation->seconds_before);
}

// One matrix is the same load step after step: loads of 4 steps, each a quarter.
TEST(BalanceSimulation, SpreadsOneMatrixOverItsSteps) {
  const BalanceLoads loads{.layers = 1, .experts = 2, .steps = 4, .loads = {8, 4}, .traffic = {}};
  SimulationRequest request = request_for(2, 2);
  request.plan.costs = {.seconds_per_row = 1};
  const auto simulation = simulate_balance(loads, {}, request);
  ASSERT_TRUE(simulation);
  EXPECT_EQ(simulation->steps, 4u);
  EXPECT_EQ(simulation->seconds_before, 8);
  request.repeat = 10;
  const auto longer = simulate_balance(loads, {}, request);
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->seconds_before, 20);
}

TEST(BalanceSimulation, RefusesARequestByName) {
  const BalanceLoads loads{.layers = 1, .experts = 2, .loads = {8, 4}, .traffic = {}};
  const auto message = [&](const SimulationRequest& request,
                           std::span<const ExpertMap> start = {}) {
    const auto simulation = simulate_balance(loads, start, request);
    return simulation ? std::string() : to_string(simulation.error());
  };
  SimulationRequest request = request_for(2, 2);
  EXPECT_EQ(message(request), "");
  const auto other = ExpertMap::make({0, 1, 1}, 2, 1);
  ASSERT_TRUE(other);
  EXPECT_THAT(message(request, std::span(&*other, 1)), HasSubstr("maps in use: want 2 experts"));
  EXPECT_THAT(message(request, std::vector<ExpertMap>(2, *other)), HasSubstr("layers of the maps"));
  request.repeat = std::size_t{1} << 60;
  EXPECT_THAT(message(request), HasSubstr("steps to simulate"));
  request = request_for(2, 2);
  request.interval = 0;
  EXPECT_THAT(message(request), HasSubstr("interval of rebalancing"));
  request.interval = 1;
  request.half_life = 0;
  EXPECT_THAT(message(request), HasSubstr("half-life"));
  EXPECT_THAT(message(request_for(3, 2)), HasSubstr("slots to plan for"));
}

}  // namespace
}  // namespace lode::engine
