#include "lode/placement/shape.h"

#include <algorithm>
#include <string>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/placement/expert_map.h"

namespace lode::placement {
namespace {

Status within(std::string_view what, std::size_t value, std::size_t most) {
  if (value >= 1 && value <= most) return {};
  return Error{.code = Code::kUsage,
               .thing = fmt::format("number of {} to plan for", what),
               .wanted = fmt::format("1..{}", most),
               .found = fmt::format("{}", value)};
}

// The legal numbers of slots below and above the one that was asked for.
std::string nearest_slots(const Shape& shape, std::size_t experts) {
  const std::size_t least = align_up(experts, shape.ranks);
  const std::size_t below = shape.slots / shape.ranks * shape.ranks;
  if (below < least) return fmt::format("the nearest is {}", least);
  return fmt::format("the nearest are {} and {}", below, below + shape.ranks);
}

Status check_slots(const Shape& shape, std::size_t experts) {
  if (shape.slots >= experts && shape.slots % shape.ranks == 0) return {};
  return Error{
      .code = Code::kUsage,
      .thing = "slots to plan for",
      .wanted = fmt::format("at least {} experts and a multiple of {} ranks", experts, shape.ranks),
      .found = fmt::format("{}", shape.slots),
      .hint = nearest_slots(shape, experts)};
}

}  // namespace

Result<Hierarchy> check_shape(const Shape& shape, std::size_t experts) {
  LODE_TRY_STATUS(within("experts", experts, kMaxExperts));
  LODE_TRY_STATUS(within("ranks", shape.ranks, kMaxRanks));
  LODE_TRY_STATUS(within("slots", shape.slots, kMaxSlots));
  LODE_TRY_STATUS(within("nodes", shape.nodes, kMaxRanks));
  LODE_TRY_STATUS(within("groups", shape.groups, kMaxExperts));
  LODE_TRY_STATUS(check_slots(shape, experts));
  Hierarchy used{.groups = shape.groups, .nodes = shape.nodes};
  if (shape.ranks % used.nodes != 0) used.nodes = 1;
  if (used.groups % used.nodes != 0) used = {};
  if (experts % used.groups == 0) return used;
  return Error{.code = Code::kUsage,
               .thing = "groups of experts to plan for",
               .wanted = fmt::format("a divisor of {} experts", experts),
               .found = fmt::format("{}", used.groups),
               .hint = "1 where the router knows no groups"};
}

}  // namespace lode::placement
