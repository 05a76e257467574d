#include "lode/placement/linear_placement.h"

#include <algorithm>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/base/fmt.h"

namespace lode::placement {
namespace {

Status check_count(std::string_view what, std::size_t value, std::size_t most) {
  if (value >= 1 && value <= most) return {};
  return Error{.code = Code::kUsage,
               .thing = fmt::format("number of {} of a placement", what),
               .wanted = fmt::format("1..{}", most),
               .found = fmt::format("{}", value)};
}

// The slot of an expert among all slots, empty ones included.
std::size_t slot_of(std::size_t expert, std::size_t experts, std::size_t ranks, Order order) {
  const std::size_t slots_per_rank = ceil_div(experts, ranks);
  if (order == Order::kRoundRobin) return expert % ranks * slots_per_rank + expert / ranks;
  const std::size_t base = experts / ranks;
  const std::size_t in_fuller_ranks = experts % ranks * (base + 1);
  if (expert < in_fuller_ranks) return expert;
  const std::size_t rest = expert - in_fuller_ranks;
  return (experts % ranks + rest / base) * slots_per_rank + rest % base;
}

}  // namespace

Result<ExpertMap> dealt_map(std::size_t experts, std::size_t ranks, Order order) {
  LODE_TRY_STATUS(check_count("experts", experts, kMaxExperts));
  LODE_TRY_STATUS(check_count("ranks", ranks, kMaxRanks));
  std::vector<std::int32_t> physical_to_logical(ranks * ceil_div(experts, ranks), kNoExpert);
  for (std::size_t e = 0; e < experts; ++e)
    physical_to_logical[slot_of(e, experts, ranks, order)] = static_cast<std::int32_t>(e);
  return ExpertMap::make(std::move(physical_to_logical), experts, ranks);
}

std::vector<std::int32_t> local_slots(const ExpertMap& map, std::size_t rank) {
  std::vector<std::int32_t> local(map.experts(), -1);
  const auto held = map.experts_on(rank);
  for (std::size_t slot = held.size(); slot-- > 0;)
    if (held[slot] != kNoExpert)
      local[static_cast<std::size_t>(held[slot])] = static_cast<std::int32_t>(slot);
  return local;
}

std::optional<std::vector<std::int32_t>> rank_local_map(const ExpertMap& map, std::size_t rank) {
  std::vector<std::int32_t> local = local_slots(map, rank);
  if (map.ranks() > 1) return local;
  for (std::size_t e = 0; e < local.size(); ++e)
    if (static_cast<std::size_t>(local[e]) != e) return local;
  return std::nullopt;
}

ContiguousIds contiguous_ids(const ExpertMap& map) {
  LODE_CHECK(map.filled_slots() == map.experts(), "consecutive ids are for maps without replicas");
  ContiguousIds ids;
  ids.global_to_physical.resize(map.experts());
  for (const std::int32_t expert : map.physical_to_logical()) {
    if (expert == kNoExpert) continue;
    ids.global_to_physical[static_cast<std::size_t>(expert)] =
        static_cast<std::int32_t>(ids.physical_to_global.size());
    ids.physical_to_global.push_back(expert);
  }
  return ids;
}

std::optional<std::string> round_robin_refusal(const RoundRobinWish& wish) {
  if (wish.expert_groups <= 1) return "the model's experts form one group";
  if (wish.redundant_experts > 0)
    return fmt::format("there are {} redundant experts", wish.redundant_experts);
  if (wish.balancing) return "balancing is on";
  if (!wish.backend_takes_it) return "the exchange wants the experts of a rank to be consecutive";
  return std::nullopt;
}

}  // namespace lode::placement
