#include "lode/moe/expert_places.h"

#include <utility>

#include "lode/base/check.h"

namespace lode::moe {
namespace {

std::size_t ranks_per_node(const comm::Group& group) {
  std::size_t ranks = 1;
  while (ranks < group.size() && group.node_of(ranks) == group.node_of(0)) ++ranks;
  return ranks;
}

placement::NearReplicas replicas_of(const comm::Group& group, const placement::ExpertMap& map) {
  return {map, group.rank(), ranks_per_node(group)};
}

}  // namespace

ExpertPlaces::ExpertPlaces(comm::Group& group, std::vector<placement::ExpertMap> maps,
                           bool whole_banks)
    : group_(&group), maps_(std::move(maps)), whole_banks_(whole_banks) {
  for (const placement::ExpertMap& map : maps_) {
    LODE_CHECK(map.ranks() == group.size(), "a map of other ranks than the group's");
    replicas_.push_back(replicas_of(group, map));
  }
}

std::uint64_t ExpertPlaces::num_records(std::size_t layer) const {
  const placement::ExpertMap& map = maps_[layer];
  return whole_banks_ ? map.experts() : experts_of_rank(map, group_->rank()).size();
}

void ExpertPlaces::replace(std::size_t layer, placement::ExpertMap map) {
  replicas_[layer] = replicas_of(*group_, map);
  maps_[layer] = std::move(map);
}

std::vector<std::uint32_t> experts_of_rank(const placement::ExpertMap& map, std::size_t rank) {
  std::vector<std::uint32_t> experts;
  bool ended = false;
  for (const std::int32_t expert : map.experts_on(rank)) {
    LODE_CHECK(expert < 0 || !ended, "empty slots are a rank's last");
    ended = expert < 0;
    if (!ended) experts.push_back(static_cast<std::uint32_t>(expert));
  }
  return experts;
}

}  // namespace lode::moe
