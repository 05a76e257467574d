#include "lode/placement/expert_map.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lode/base/fmt.h"

namespace lode::placement {
namespace {

Error bad_map(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

Status check_sizes(std::size_t slots, std::size_t experts, std::size_t ranks) {
  const auto within = [](std::string_view what, std::size_t value, std::size_t most) -> Status {
    if (value >= 1 && value <= most) return {};
    return bad_map(fmt::format("number of {} of an expert map", what), fmt::format("1..{}", most),
                   fmt::format("{}", value));
  };
  LODE_TRY_STATUS(within("experts", experts, kMaxExperts));
  LODE_TRY_STATUS(within("slots", slots, kMaxSlots));
  LODE_TRY_STATUS(within("ranks", ranks, kMaxRanks));
  if (slots % ranks == 0) return {};
  return bad_map("slots of an expert map", fmt::format("a multiple of {} ranks", ranks),
                 fmt::format("{}", slots));
}

Status check_ids(std::span<const std::int32_t> physical_to_logical, std::size_t experts) {
  std::vector<bool> seen(experts);
  for (std::size_t slot = 0; slot < physical_to_logical.size(); ++slot) {
    const std::int32_t expert = physical_to_logical[slot];
    if (expert == kNoExpert) continue;
    if (expert < 0 || static_cast<std::size_t>(expert) >= experts) {
      return bad_map(fmt::format("slot {} of an expert map", slot),
                     fmt::format("an expert of 0..{}, or -1", experts - 1),
                     fmt::format("{}", expert));
    }
    seen[static_cast<std::size_t>(expert)] = true;
  }
  const auto missing = std::ranges::find(seen, false);
  if (missing == seen.end()) return {};
  return bad_map(fmt::format("expert {} of an expert map", missing - seen.begin()),
                 "a slot that holds it", "none");
}

Error usage(std::string thing, std::string wanted, std::string found) {
  Error error = bad_map(std::move(thing), std::move(wanted), std::move(found));
  error.code = Code::kUsage;
  return error;
}

Result<ExpertMap> from_flags(Result<ExpertMap> map) {
  if (map) return map;
  Error error = std::move(map).error();
  error.code = Code::kUsage;
  return error;
}

}  // namespace

Result<ExpertMap> ExpertMap::make(std::vector<std::int32_t> physical_to_logical,
                                  std::size_t experts, std::size_t ranks) {
  LODE_TRY_STATUS(check_sizes(physical_to_logical.size(), experts, ranks));
  LODE_TRY_STATUS(check_ids(physical_to_logical, experts));
  return ExpertMap(std::move(physical_to_logical), experts, ranks);
}

// Counts, sums, places: the list of every expert rises because slots are visited in order.
ExpertMap::ExpertMap(std::vector<std::int32_t> physical_to_logical, std::size_t experts,
                     std::size_t ranks)
    : physical_to_logical_(std::move(physical_to_logical)), begins_(experts + 1), ranks_(ranks) {
  for (const std::int32_t expert : physical_to_logical_)
    if (expert != kNoExpert) ++begins_[static_cast<std::size_t>(expert) + 1];
  for (std::size_t e = 0; e < experts; ++e) begins_[e + 1] += begins_[e];
  list_.resize(static_cast<std::size_t>(begins_.back()));
  for (std::size_t slot = 0; slot < physical_to_logical_.size(); ++slot) {
    const std::int32_t expert = physical_to_logical_[slot];
    if (expert == kNoExpert) continue;
    std::int32_t& place = begins_[static_cast<std::size_t>(expert)];
    list_[static_cast<std::size_t>(place++)] = static_cast<std::int32_t>(slot);
  }
  // Every beginning has become its end, which is the beginning of the next.
  for (std::size_t e = experts; e > 0; --e) begins_[e] = begins_[e - 1];
  begins_[0] = 0;
}

Result<ExpertMap> initial_map(std::size_t experts, std::size_t slots, std::size_t ranks) {
  if (slots > kMaxSlots)
    return usage("slots of an expert map", fmt::format("at most {}", kMaxSlots),
                 fmt::format("{}", slots));
  if (experts == 0) return usage("experts of an expert map", "one or more", "0");
  std::vector<std::int32_t> physical_to_logical(slots);
  for (std::size_t slot = 0; slot < slots; ++slot)
    physical_to_logical[slot] = static_cast<std::int32_t>(slot % experts);
  return from_flags(ExpertMap::make(std::move(physical_to_logical), experts, ranks));
}

Result<ExpertMap> grown(const ExpertMap& map, std::size_t ranks) {
  const std::size_t most = std::min(kMaxRanks, kMaxSlots / map.slots_per_rank());
  if (ranks < map.ranks() || ranks > most) {
    return usage("ranks that an expert map grows to", fmt::format("{}..{}", map.ranks(), most),
                 fmt::format("{}", ranks));
  }
  const auto old = map.physical_to_logical();
  std::vector<std::int32_t> physical_to_logical(old.begin(), old.end());
  physical_to_logical.resize(ranks * map.slots_per_rank(), kNoExpert);
  return ExpertMap::make(std::move(physical_to_logical), map.experts(), ranks);
}

Result<ExpertMap> shrunk(const ExpertMap& map, std::size_t ranks) {
  if (ranks == 0 || ranks > map.ranks()) {
    return usage("ranks that an expert map shrinks to", fmt::format("1..{}", map.ranks()),
                 fmt::format("{}", ranks));
  }
  const auto kept = map.physical_to_logical().first(ranks * map.slots_per_rank());
  return from_flags(ExpertMap::make({kept.begin(), kept.end()}, map.experts(), ranks));
}

}  // namespace lode::placement
