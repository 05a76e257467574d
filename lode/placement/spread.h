#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lode/placement/packing.h"
#include "lode/placement/shape.h"

namespace lode::placement {

/// Our own policy, a layer at a time: an expert has at most one replica on a rank (more cost memory
/// and spread nothing), the heaviest replica goes first and to the lightest rank that lacks its
/// expert, then slots of the heaviest rank are swapped with others as long as that makes it
/// lighter. It knows nothing of nodes and groups. No theorem says that it is best; `plan` compares.
///
/// Memory: two bytes for each pair of expert and rank, a few numbers a slot, taken once.
class SpreadPlanner {
 public:
  SpreadPlanner(std::size_t experts, const Shape& shape);

  /// Shapes:  load [experts]; physical_to_logical [slots].
  void plan_layer(std::span<const float> load, std::span<std::int32_t> physical_to_logical);

 private:
  struct Swap {
    std::size_t slot = 0, other = 0;
    double heavier = 0;  // of the two ranks, after it
  };
  void count_replicas(std::span<const float> load);
  void place(std::int32_t expert, std::span<std::int32_t> physical_to_logical);
  std::size_t lightest_rank(std::size_t expert, bool lacking) const;
  Swap best_swap(std::size_t rank, std::span<const std::int32_t> physical_to_logical) const;
  void improve(std::span<std::int32_t> physical_to_logical);
  bool repeats(std::size_t expert, std::size_t rank) const;
  std::uint16_t& copies(std::size_t expert, std::size_t rank);

  std::size_t ranks_, slots_per_rank_;
  std::vector<std::size_t> counts_;
  std::vector<double> share_;  // load of one replica of an expert
  std::vector<PackingRoom::Weighed> order_;
  std::vector<double> rank_load_;
  std::vector<std::size_t> rank_filled_;
  std::vector<std::uint16_t> copies_;  // [ranks, experts]: replicas of an expert on a rank
};

}  // namespace lode::placement
