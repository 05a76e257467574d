#include "lode/engine/balance_traffic.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>

#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

constexpr std::array kKinds{
    TrafficKindInfo{TrafficKind::kZipf, "zipf", "the n-th most popular expert has 1 / n^exponent"},
    TrafficKindInfo{TrafficKind::kLogNormal, "log-normal", "popularity is e^(sigma x normal)"},
    TrafficKindInfo{TrafficKind::kShifting, "shifting",
                    "a few hot experts share a part of all rows; others become hot now and then"},
};

constexpr std::size_t kMaxCounts = std::size_t{1} << 28;

// The random numbers of splitmix64: the same on every machine, unlike the standard's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  // Above 0, at most 1.
  double uniform() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  std::vector<std::size_t> order(std::size_t n) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[next() % i]);
    return order;
  }

 private:
  std::uint64_t state_;
};

Status check(const TrafficSpec& spec) {
  const auto refused = [](std::string_view thing, std::string wanted, std::string found) {
    return Error{.code = Code::kUsage,
                 .thing = fmt::format("{} of the traffic", thing),
                 .wanted = std::move(wanted),
                 .found = std::move(found)};
  };
  const auto positive = [&](std::string_view thing, std::size_t value) -> Status {
    if (value >= 1 && value <= kMaxCounts) return {};
    return refused(thing, fmt::format("1..{}", kMaxCounts), fmt::format("{}", value));
  };
  LODE_TRY_STATUS(positive("layers", spec.layers));
  LODE_TRY_STATUS(positive("experts", spec.experts));
  LODE_TRY_STATUS(positive("steps", spec.steps));
  LODE_TRY_STATUS(positive("steps between shifts", spec.shift_every));
  // Each is below 2^28: two multiply without care, and the third is asked about by division.
  const std::size_t numbers = spec.layers * spec.experts;
  if (numbers > kMaxBalanceNumbers || numbers > kMaxCounts / spec.steps)
    return refused(
        "counts", fmt::format("at most {} a step and {} in all", kMaxBalanceNumbers, kMaxCounts),
        fmt::format("{} layers of {} experts in {} steps", spec.layers, spec.experts, spec.steps));
  if (!(spec.rows_per_step > 0 && spec.rows_per_step <= 1e12))
    return refused("rows", "a number above 0, at most 1e12", fmt::format("{}", spec.rows_per_step));
  if (!(std::abs(spec.exponent) <= 20))
    return refused("exponent", "-20..20", fmt::format("{}", spec.exponent));
  if (!(std::abs(spec.sigma) <= 20))
    return refused("sigma", "-20..20", fmt::format("{}", spec.sigma));
  if (!(spec.hot_share >= 0 && spec.hot_share <= 1))
    return refused("hot share", "0..1", fmt::format("{}", spec.hot_share));
  if (spec.kind != TrafficKind::kShifting ||
      (spec.hot_experts > 0 && spec.hot_experts < spec.experts))
    return {};
  return refused("hot experts", fmt::format("1..{}", spec.experts - 1),
                 fmt::format("{}", spec.hot_experts));
}

// How much of a layer's rows each expert gets; sums to 1.
std::vector<double> popularity(const TrafficSpec& spec, Random& random) {
  std::vector<double> share(spec.experts);
  const auto order = random.order(spec.experts);
  const auto experts = static_cast<double>(spec.experts);
  const auto hot = static_cast<double>(spec.hot_experts);
  for (std::size_t i = 0; i < spec.experts; ++i) {
    double& one = share[order[i]];
    switch (spec.kind) {
      case TrafficKind::kZipf:
        one = std::pow(static_cast<double>(i + 1), -spec.exponent);
        break;
      case TrafficKind::kLogNormal:
        one = std::exp(spec.sigma * random.normal());
        break;
      case TrafficKind::kShifting:
        one = i < spec.hot_experts ? spec.hot_share / hot : (1 - spec.hot_share) / (experts - hot);
        break;
    }
  }
  const double sum = std::accumulate(share.begin(), share.end(), 0.0);
  for (double& one : share) one /= sum;
  return share;
}

}  // namespace

std::span<const TrafficKindInfo> traffic_kinds() noexcept { return kKinds; }

Result<TrafficKind> traffic_kind_by_name(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, &TrafficKindInfo::name);
  if (found != kKinds.end()) return found->kind;
  return Error{.code = Code::kUsage,
               .thing = "kind of traffic",
               .wanted = "zipf, log-normal or shifting",
               .found = std::string(name)};
}

Result<BalanceLoads> make_traffic(const TrafficSpec& spec) {
  LODE_TRY_STATUS(check(spec));
  Random random(spec.seed);
  BalanceLoads traffic{.layers = spec.layers,
                       .experts = spec.experts,
                       .steps = static_cast<double>(spec.steps),
                       .loads = std::vector<float>(spec.layers * spec.experts),
                       .traffic = {}};
  std::vector<std::vector<double>> shares(spec.layers);
  for (std::size_t step = 0; step < spec.steps; ++step) {
    const bool shifts = spec.kind == TrafficKind::kShifting && step % spec.shift_every == 0;
    std::vector<float>& counts = traffic.traffic.emplace_back();
    for (std::vector<double>& share : shares) {
      if (step == 0 || shifts) share = popularity(spec, random);
      for (const double one : share) {
        const double mean = one * spec.rows_per_step;
        const double count = mean + std::sqrt(mean * (1 - one)) * random.normal();
        counts.push_back(static_cast<float>(std::max(0.0, std::round(count))));
      }
    }
    for (std::size_t i = 0; i < counts.size(); ++i) traffic.loads[i] += counts[i];
  }
  return traffic;
}

}  // namespace lode::engine
