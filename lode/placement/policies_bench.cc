// Planning for DeepSeek-V3: 58 layers x 256 experts -> 288 slots, 32 ranks in 4 nodes, 8 groups.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "lode/placement/balance.h"
#include "lode/placement/policies.h"

namespace lode::placement {
namespace {

constexpr std::size_t kLayers = 58;
constexpr std::size_t kExperts = 256;
constexpr Shape kShape{.slots = 288, .ranks = 32, .nodes = 4, .groups = 8};

std::vector<float> log_normal_load(unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> load;
  for (std::size_t i = 0; i < kLayers * kExperts; ++i)
    load.push_back(static_cast<float>(1000 * std::exp(normal(random))));
  return load;
}

void BM_Plan(benchmark::State& state, Policy policy, bool from_current) {
  const std::vector<float> before = log_normal_load(1);
  const std::vector<float> load = log_normal_load(2);
  PlanInput input{.load = before, .experts = kExperts, .shape = kShape};
  const auto current = plan(Policy::kDeepSeek, input);
  input.load = load;
  if (from_current && current) input.current = *current;
  const auto first = plan(policy, input);
  if (!first || first->size() != kLayers) {
    state.SkipWithError("wrong plans are not timed");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(plan(policy, input));
  state.counters["balancedness"] = balance_of_maps(*first, load).balancedness();
}
BENCHMARK_CAPTURE(BM_Plan, deepseek, Policy::kDeepSeek, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Plan, deepseek_from_current, Policy::kDeepSeek, true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Plan, best, Policy::kBest, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Plan, best_from_current, Policy::kBest, true)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lode::placement
