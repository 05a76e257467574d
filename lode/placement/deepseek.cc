#include "lode/placement/deepseek.h"

#include <algorithm>

#include "lode/base/check.h"

namespace lode::placement {

DeepSeekPlanner::DeepSeekPlanner(std::size_t experts, const Shape& shape, Hierarchy hierarchy)
    : shape_(shape),
      hierarchy_(hierarchy),
      group_load_(hierarchy.groups),
      node_of_group_(hierarchy.groups),
      place_of_group_(hierarchy.groups),
      expert_of_label_(experts),
      load_of_label_(experts),
      label_(shape.slots / hierarchy.nodes),
      replica_(label_.size()),
      counts_(experts / hierarchy.nodes),
      share_(label_.size()),
      rank_(label_.size()),
      place_(label_.size()),
      replica_of_(shape.slots) {}

// Experts get labels node by node, in a node group by group in the order in which they were packed.
void DeepSeekPlanner::order_by_node(std::span<const float> load) {
  const std::size_t groups = hierarchy_.groups;
  const std::size_t width = load.size() / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    group_load_[g] = 0;
    for (const float one : load.subspan(g * width, width)) group_load_[g] += one;
  }
  pack_evenly(group_load_, hierarchy_.nodes, node_of_group_, place_of_group_, room_);
  const std::size_t groups_per_node = groups / hierarchy_.nodes;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = (static_cast<std::size_t>(node_of_group_[g]) * groups_per_node +
                               static_cast<std::size_t>(place_of_group_[g])) *
                              width;
    for (std::size_t i = 0; i < width; ++i) {
      expert_of_label_[first + i] = static_cast<std::int32_t>(g * width + i);
      load_of_label_[first + i] = load[g * width + i];
    }
  }
}

void DeepSeekPlanner::fill_node(std::size_t node, std::span<std::int32_t> physical_to_logical) {
  const std::size_t labels = counts_.size();
  const std::size_t slots = label_.size();
  const auto load = std::span(load_of_label_).subspan(node * labels, labels);
  replicate(load, label_, replica_, counts_, room_);
  for (std::size_t i = 0; i < slots; ++i) {
    const auto label = static_cast<std::size_t>(label_[i]);
    share_[i] = load[label] / static_cast<double>(counts_[label]);
  }
  pack_evenly(share_, shape_.ranks / hierarchy_.nodes, rank_, place_, room_);
  const std::size_t slots_per_rank = shape_.slots / shape_.ranks;
  for (std::size_t i = 0; i < slots; ++i) {
    const std::size_t slot = node * slots + static_cast<std::size_t>(rank_[i]) * slots_per_rank +
                             static_cast<std::size_t>(place_[i]);
    physical_to_logical[slot] =
        expert_of_label_[node * labels + static_cast<std::size_t>(label_[i])];
    replica_of_[slot] = replica_[i];
  }
}

void DeepSeekPlanner::plan_layer(std::span<const float> load,
                                 std::span<std::int32_t> physical_to_logical) {
  LODE_CHECK(load.size() == expert_of_label_.size(), "a load for every expert");
  LODE_CHECK(physical_to_logical.size() == shape_.slots, "an expert for every slot");
  order_by_node(load);
  for (std::size_t node = 0; node < hierarchy_.nodes; ++node) fill_node(node, physical_to_logical);
}

std::vector<std::int32_t> slots_by_replica(const ExpertMap& map,
                                           std::span<const std::int32_t> replica_of) {
  LODE_CHECK(replica_of.size() == map.slots(), "a replica for every slot");
  std::vector<std::int32_t> list;
  for (std::size_t expert = 0; expert < map.experts(); ++expert) {
    const auto slots = map.slots_of(expert);
    const auto first = static_cast<std::ptrdiff_t>(list.size());
    list.insert(list.end(), slots.begin(), slots.end());
    std::ranges::stable_sort(list.begin() + first, list.end(), {}, [&](std::int32_t slot) {
      return replica_of[static_cast<std::size_t>(slot)];
    });
  }
  return list;
}

}  // namespace lode::placement
