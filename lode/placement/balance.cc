#include "lode/placement/balance.h"

#include <algorithm>
#include <limits>

#include "lode/base/check.h"

namespace lode::placement {

float usable_load(float load) noexcept {
  if (!(load > 0)) return 0;
  return std::min(load, std::numeric_limits<float>::max());
}

// Experts in order, so that the sum of a rank does not depend on where in the rank they lie.
std::vector<double> rank_loads(const ExpertMap& map, std::span<const float> load) {
  LODE_CHECK(load.size() == map.experts(), "a load for every expert");
  std::vector<double> sums(map.ranks());
  for (std::size_t expert = 0; expert < load.size(); ++expert) {
    const auto slots = map.slots_of(expert);
    const double share =
        static_cast<double>(usable_load(load[expert])) / static_cast<double>(slots.size());
    for (const std::int32_t slot : slots)
      sums[map.rank_of(static_cast<std::size_t>(slot))] += share;
  }
  return sums;
}

double Balance::balancedness() const noexcept {
  // Rounding of the mean must not make more than perfect of it.
  return max > 0 ? std::min(mean / max, 1.0) : 0;
}

Balance balance_of_counts(std::span<const double> tokens, std::size_t ranks) {
  LODE_CHECK(ranks > 0 && tokens.size() % ranks == 0, "a count for every rank of every layer");
  Balance balance;
  for (std::size_t first = 0; first < tokens.size(); first += ranks) {
    double sum = 0;
    for (const double count : tokens.subspan(first, ranks)) sum += count;
    balance.mean += sum / static_cast<double>(ranks);
    balance.max += std::ranges::max(tokens.subspan(first, ranks));
  }
  return balance;
}

Balance balance_of_maps(std::span<const ExpertMap> maps, std::span<const float> load) {
  Balance balance;
  if (maps.empty()) return balance;
  const std::size_t experts = maps.front().experts();
  LODE_CHECK(load.size() == maps.size() * experts, "a load for every expert of every layer");
  for (std::size_t layer = 0; layer < maps.size(); ++layer) {
    const auto row = load.subspan(layer * experts, experts);
    double sum = 0;
    for (const float one : row) sum += usable_load(one);
    balance.mean += sum / static_cast<double>(maps[layer].ranks());
    balance.max += std::ranges::max(rank_loads(maps[layer], row));
  }
  return balance;
}

std::vector<std::int64_t> logical_counts(std::span<const std::int32_t> window,
                                         const ExpertMap& map) {
  LODE_CHECK(window.size() % map.slots() == 0, "a count for every slot of every pass");
  std::vector<std::int64_t> counts(map.experts());
  for (std::size_t i = 0; i < window.size(); ++i) {
    const std::int32_t expert = map.expert_of(i % map.slots());
    if (expert != kNoExpert) counts[static_cast<std::size_t>(expert)] += window[i];
  }
  return counts;
}

}  // namespace lode::placement
