#pragma once

#include <cstddef>

#include "lode/base/result.h"

namespace lode::placement {

/// What a plan is made for. Ranks of one node are consecutive, so are the experts of one group.
struct Shape {
  std::size_t slots = 0;  // of all ranks together
  std::size_t ranks = 1;
  std::size_t nodes = 1;   // machines or sockets: a rank reaches those of its own more cheaply
  std::size_t groups = 1;  // of experts, where the router chooses groups first
};

/// Groups and nodes as far as the hierarchical policy can use them.
struct Hierarchy {
  std::size_t groups = 1;
  std::size_t nodes = 1;
};

/// The hierarchy of a shape. Ranks that do not divide by nodes count as one node; groups that do
/// not divide by nodes leave no hierarchy at all, which is the global policy.
///
/// Errors: kUsage where experts, slots, ranks, nodes or groups are none or beyond the limits of a
/// map, where slots are fewer than experts or do not divide by ranks (the hint names the nearest
/// numbers that do), and where experts do not divide by the groups that would be used.
Result<Hierarchy> check_shape(const Shape& shape, std::size_t experts);

}  // namespace lode::placement
