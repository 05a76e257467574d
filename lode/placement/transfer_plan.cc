#include "lode/placement/transfer_plan.h"

#include <algorithm>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/placement/expert_map.h"

namespace lode::placement {
namespace {

// Where an expert lies on a rank: its first slot there.
struct Place {
  std::size_t rank;
  std::size_t slot;
};
using Places = std::vector<std::vector<Place>>;  // by expert, ranks rising

Status check_maps(std::span<const std::int32_t> from, std::span<const std::int32_t> to,
                  std::size_t ranks) {
  const auto refused = [](std::string thing, std::string wanted, std::string found) {
    return Error{.code = Code::kUsage,
                 .thing = std::move(thing),
                 .wanted = std::move(wanted),
                 .found = std::move(found)};
  };
  if (from.size() != to.size())
    return refused("slots of the new map", fmt::format("{}", from.size()),
                   fmt::format("{}", to.size()));
  if (ranks == 0 || from.size() % ranks != 0 || from.size() > kMaxSlots)
    return refused("slots of a transfer",
                   fmt::format("at most {}, a multiple of the {} ranks", kMaxSlots, ranks),
                   fmt::format("{}", from.size()));
  for (const auto map : {from, to})
    for (const std::int32_t expert : map)
      if (expert < kNoExpert || expert >= static_cast<std::int32_t>(kMaxExperts))
        return refused("expert of a slot", fmt::format("-1..{}", kMaxExperts - 1),
                       fmt::format("{}", expert));
  return {};
}

Places places_of(std::span<const std::int32_t> map, std::size_t ranks, std::size_t experts) {
  Places places(experts);
  const std::size_t slots_per_rank = map.size() / ranks;
  for (std::size_t slot = 0; slot < map.size(); ++slot) {
    if (map[slot] == kNoExpert) continue;
    auto& list = places[static_cast<std::size_t>(map[slot])];
    const std::size_t rank = slot / slots_per_rank;
    if (list.empty() || list.back().rank != rank) list.push_back({rank, slot % slots_per_rank});
  }
  return places;
}

// Equal shares of the receivers, in order; the receivers left over go one each to the first
// senders.
void send_expert(std::int32_t expert, std::span<const Place> holders,
                 std::span<const Place> wanting, std::vector<RankTransfer>& plan) {
  const std::size_t share = wanting.size() / holders.size();
  const std::size_t shared = share * holders.size();
  const auto send = [&](const Place& from, const Place& to) {
    plan[from.rank].sends.push_back(
        {expert, static_cast<std::int32_t>(from.slot), static_cast<std::int32_t>(to.rank)});
    plan[to.rank].receives.push_back(
        {expert, static_cast<std::int32_t>(from.rank), static_cast<std::int32_t>(to.slot)});
  };
  for (std::size_t i = 0; i < holders.size(); ++i) {
    for (std::size_t j = i * share; j < (i + 1) * share; ++j) send(holders[i], wanting[j]);
    if (shared + i < wanting.size()) send(holders[i], wanting[shared + i]);
  }
}

bool holds(std::span<const Place> places, std::size_t rank) {
  return std::ranges::find(places, rank, &Place::rank) != places.end();
}

// What one rank does for itself: what stays, what is copied, what is received once and then copied.
void plan_rank(std::span<const std::int32_t> from, std::span<const std::int32_t> to,
               RankTransfer& plan) {
  for (std::size_t slot = 0; slot < to.size(); ++slot) {
    const auto here = static_cast<std::int32_t>(slot);
    if (from[slot] == to[slot]) {
      plan.unchanged.push_back(here);
      continue;
    }
    if (to[slot] == kNoExpert) continue;
    const auto held = std::ranges::find(from, to[slot]);
    if (held != from.end()) {
      plan.local_copies.push_back({static_cast<std::int32_t>(held - from.begin()), here});
      continue;
    }
    const auto first = std::ranges::find(to, to[slot]) - to.begin();
    if (first < here) plan.duplicates.push_back({static_cast<std::int32_t>(first), here});
  }
}

}  // namespace

Result<std::vector<RankTransfer>> plan_transfer(std::span<const std::int32_t> from,
                                                std::span<const std::int32_t> to,
                                                std::size_t ranks) {
  LODE_TRY_STATUS(check_maps(from, to, ranks));
  std::vector<RankTransfer> plan(ranks);
  if (to.empty()) return plan;
  const auto experts =
      static_cast<std::size_t>(std::max(std::ranges::max(from), std::ranges::max(to)) + 1);
  const Places old_places = places_of(from, ranks, experts);
  const Places new_places = places_of(to, ranks, experts);
  for (std::size_t expert = 0; expert < experts; ++expert) {
    const auto& holders = old_places[expert];
    std::vector<Place> wanting = new_places[expert];
    std::erase_if(wanting, [&](const Place& place) { return holds(holders, place.rank); });
    if (!wanting.empty() && holders.empty())
      return Error{.code = Code::kUsage,
                   .thing = fmt::format("expert {} of the new map", expert),
                   .wanted = "a slot of the old map that holds it",
                   .found = "none"};
    if (!wanting.empty()) send_expert(static_cast<std::int32_t>(expert), holders, wanting, plan);
  }
  const std::size_t slots_per_rank = to.size() / ranks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t first = rank * slots_per_rank;
    plan_rank(from.subspan(first, slots_per_rank), to.subspan(first, slots_per_rank), plan[rank]);
  }
  return plan;
}

std::size_t sent_records(std::span<const RankTransfer> plan) {
  std::size_t sent = 0;
  for (const RankTransfer& rank : plan) sent += rank.sends.size();
  return sent;
}

std::size_t buffered_records(const RankTransfer& plan) {
  return plan.local_copies.size() + plan.receives.size();
}

}  // namespace lode::placement
