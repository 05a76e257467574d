#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lode/placement/expert_map.h"

namespace lode::placement {

/// How experts without replicas are dealt to ranks.
enum class Order : std::uint8_t {
  kLinear,      // consecutive experts; where they do not divide, the first ranks hold one more
  kRoundRobin,  // expert e lies on rank e mod ranks, in slot e / ranks
};

/// One slot an expert, and as many slots a rank as the fullest rank needs: where experts do not
/// divide by ranks the last slot of the other ranks is empty; with more ranks than experts some
/// ranks hold nothing.
///
/// Errors: kUsage for sizes beyond the limits of a map, or none.
Result<ExpertMap> dealt_map(std::size_t experts, std::size_t ranks, Order order);

/// For each expert its slot on `rank`, counted from the rank's first, or -1; the first slot where a
/// rank holds several.
std::vector<std::int32_t> local_slots(const ExpertMap& map, std::size_t rank);

/// As `local_slots`, or nothing where one rank holds all experts in order and needs no table.
std::optional<std::vector<std::int32_t>> rank_local_map(const ExpertMap& map, std::size_t rank);

/// For a backend that wants the experts of a rank to have consecutive ids: ids by rank, then by
/// slot, empty slots left out; and the way back.
struct ContiguousIds {
  std::vector<std::int32_t> global_to_physical;
  std::vector<std::int32_t> physical_to_global;
};
/// Takes maps without replicas.
ContiguousIds contiguous_ids(const ExpertMap& map);

/// What decides whether round robin may be had.
struct RoundRobinWish {
  std::size_t expert_groups = 1;
  std::size_t redundant_experts = 0;
  bool balancing = false;
  bool backend_takes_it = true;  // the exchange is none, or one that takes scattered ownership
};

/// Why round robin cannot be had (the placement is linear then), or nothing where it can. A user is
/// told, it is not swallowed.
std::optional<std::string> round_robin_refusal(const RoundRobinWish& wish);

}  // namespace lode::placement
