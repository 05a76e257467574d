#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lode/placement/expert_map.h"
#include "lode/placement/packing.h"
#include "lode/placement/shape.h"

namespace lode::placement {

/// The published policy of DeepSeek's load balancer, a layer at a time: groups are packed into
/// nodes, in each node the experts are replicated, the replicas packed into ranks. Without a
/// hierarchy that is one node. Arithmetic is f64 on the f32 load and ties go to the lower index, so
/// a plan does not depend on the machine.
///
/// Source: github.com/deepseek-ai/EPLB, described in our words; held to its results by
/// tests/golden/eplb.json.
/// Memory: a few numbers an expert and a slot, taken once for all layers.
class DeepSeekPlanner {
 public:
  /// `hierarchy` is what `check_shape` made of `shape`, or {} for the global policy.
  DeepSeekPlanner(std::size_t experts, const Shape& shape, Hierarchy hierarchy);

  /// Shapes:  load [experts]; physical_to_logical [slots].
  void plan_layer(std::span<const float> load, std::span<std::int32_t> physical_to_logical);

  /// For each slot of the last layer the number of its replica, in the order in which the policy
  /// made them: the order in which DeepSeek lists the slots of an expert.
  std::span<const std::int32_t> replica_of() const noexcept { return replica_of_; }

 private:
  void order_by_node(std::span<const float> load);
  void fill_node(std::size_t node, std::span<std::int32_t> physical_to_logical);

  Shape shape_;
  Hierarchy hierarchy_;
  PackingRoom room_;
  std::vector<double> group_load_;
  std::vector<std::int32_t> node_of_group_, place_of_group_;
  std::vector<std::int32_t> expert_of_label_;  // experts, node by node
  std::vector<double> load_of_label_;
  std::vector<std::int32_t> label_, replica_, counts_;  // of one node
  std::vector<double> share_;
  std::vector<std::int32_t> rank_, place_;
  std::vector<std::int32_t> replica_of_;
};

/// The slots of every expert in the order in which its replicas were made, where `slots_of` has
/// them rising: experts one after the other, as many as an expert has.
///
/// Shapes:  replica_of [slots]; the result [filled slots].
std::vector<std::int32_t> slots_by_replica(const ExpertMap& map,
                                           std::span<const std::int32_t> replica_of);

}  // namespace lode::placement
