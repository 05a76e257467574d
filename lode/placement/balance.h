#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/placement/expert_map.h"

namespace lode::placement {

/// A load as planning takes it: what is negative or no number counts as 0, what is infinite as the
/// largest number, so that a broken counter never makes an invalid map.
float usable_load(float load) noexcept;

/// What each rank computes where the load of an expert is split evenly over its replicas. Depends
/// only on which rank holds what, not on the order of ranks or slots, to the last bit.
///
/// Shapes:  load [experts]; the result [ranks].
std::vector<double> rank_loads(const ExpertMap& map, std::span<const float> load);

/// Means and maxima over ranks, each summed over layers.
struct Balance {
  double mean = 0;
  double max = 0;
  /// The part of the ranks' time that is not spent on waiting for the slowest: 1 is perfect, 0
  /// where nothing was counted.
  double balancedness() const noexcept;
};

/// From what ranks counted.
///
/// Shapes:  tokens [layers, ranks].
Balance balance_of_counts(std::span<const double> tokens, std::size_t ranks);

/// What maps would make of a load. The mean is that of the load, the same for every full map, so
/// figures of two plans compare exactly.
///
/// Shapes:  load [layers, experts]; maps [layers], all of the same experts and ranks.
Balance balance_of_maps(std::span<const ExpertMap> maps, std::span<const float> load);

/// Sums what was counted by slot, pass after pass under one map, by expert. Empty slots count for
/// nobody.
///
/// Shapes:  window [passes, slots]; the result [experts].
std::vector<std::int64_t> logical_counts(std::span<const std::int32_t> window,
                                         const ExpertMap& map);

}  // namespace lode::placement
