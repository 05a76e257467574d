#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/comm/group.h"
#include "lode/moe/exchange.h"
#include "lode/placement/expert_map.h"
#include "lode/placement/replica.h"

namespace lode::moe {

/// Where the experts of every layer lie, seen from one rank: the one home of maps. The runner asks
/// it layer by layer; balancing replaces a layer's map between two passes.
class ExpertPlaces {
 public:
  /// `maps` [layers], all of the group's ranks. `whole_banks`: a bank holds all experts in order (a
  /// file that all ranks map), not only those of the rank's slots. The group must outlive it.
  ExpertPlaces(comm::Group& group, std::vector<placement::ExpertMap> maps, bool whole_banks);

  ExpertRanks layer(std::size_t layer) const {
    LayerWatch* const watch = watches_.empty() ? nullptr : &watches_[layer];
    return {group_, &maps_[layer], &replicas_[layer], whole_banks_, watch};
  }
  const placement::ExpertMap& map(std::size_t layer) const { return maps_[layer]; }
  comm::Group& group() const noexcept { return *group_; }
  std::size_t num_layers() const noexcept { return maps_.size(); }
  bool whole_banks() const noexcept { return whole_banks_; }

  /// From here on notes what every layer does; empty: no more. Shapes:  watches [layers].
  void watch(std::span<LayerWatch> watches) noexcept { watches_ = watches; }

  /// Records of this rank's bank of a layer.
  std::uint64_t num_records(std::size_t layer) const;

  /// The new map of one layer, whose weights lie where it says already.
  void replace(std::size_t layer, placement::ExpertMap map);

 private:
  comm::Group* group_;
  std::vector<placement::ExpertMap> maps_;
  std::vector<placement::NearReplicas> replicas_;
  std::span<LayerWatch> watches_;
  bool whole_banks_;
};

/// The experts of the slots that `rank` fills: what its bank holds, record by record. Empty slots
/// are a rank's last.
std::vector<std::uint32_t> experts_of_rank(const placement::ExpertMap& map, std::size_t rank);

}  // namespace lode::moe
