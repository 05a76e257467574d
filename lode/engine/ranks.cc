#include "lode/engine/ranks.h"

#include <algorithm>

#include "lode/base/fmt.h"
#include "lode/comm/first_other.h"
#include "lode/io/checksum.h"
#include "lode/moe/expert_places.h"

namespace lode::engine {
namespace {

Error no_experts(std::uint32_t ranks) {
  return {.code = Code::kUsage,
          .thing = "--ranks",
          .wanted = "1, as this model has no routed experts",
          .found = fmt::format("{}", ranks)};
}

Result<placement::ExpertMap> map_of(const families::RouterSpec& router,
                                    const RankSettings& settings) {
  if (settings.redundant_experts == 0) {
    return placement::dealt_map(router.num_experts, settings.ranks, settings.order);
  }
  const std::size_t slots = std::size_t{router.num_experts} + settings.redundant_experts;
  return placement::initial_map(router.num_experts, slots, settings.ranks);
}

Error other_maps(std::string thing, std::size_t wanted, std::size_t found) {
  return {.code = Code::kUsage,
          .thing = std::move(thing),
          .wanted = fmt::format("{}", wanted),
          .found = fmt::format("{}", found),
          .where = "--expert-map"};
}

// All layers have as many slots a rank, and a rank's empty ones are its last: so a bank is laid
// out.
Status check_map(const placement::ExpertMap& map, const families::ModelSpec& spec,
                 const RankSettings& settings) {
  if (map.experts() != spec.router.num_experts) {
    return other_maps("experts of a map", spec.router.num_experts, map.experts());
  }
  if (map.ranks() != settings.ranks) {
    return other_maps("ranks of a map", settings.ranks, map.ranks());
  }
  if (map.slots() != settings.maps.front().slots()) {
    return other_maps("slots of each layer", settings.maps.front().slots(), map.slots());
  }
  for (std::size_t slot = 1; slot < map.slots(); ++slot) {
    const bool same_rank = map.rank_of(slot) == map.rank_of(slot - 1);
    if (same_rank && map.expert_of(slot - 1) < 0 && map.expert_of(slot) >= 0) {
      return Error{.code = Code::kUsage,
                   .thing = fmt::format("slot {} of a map", slot - 1),
                   .wanted = "an expert, as the empty slots of a rank are its last",
                   .found = "none",
                   .where = "--expert-map"};
    }
  }
  return {};
}

Result<std::vector<placement::ExpertMap>> check_maps(const families::ModelSpec& spec,
                                                     const RankSettings& settings) {
  if (settings.maps.size() != spec.num_layers) {
    return other_maps("maps", spec.num_layers, settings.maps.size());
  }
  for (const placement::ExpertMap& map : settings.maps) {
    LODE_TRY_STATUS(check_map(map, spec, settings));
  }
  return settings.maps;
}

Result<std::vector<placement::ExpertMap>> made_maps(const families::ModelSpec& spec,
                                                    const RankSettings& settings) {
  if (settings.order == placement::Order::kRoundRobin) {
    const auto refusal = placement::round_robin_refusal(
        {.expert_groups = spec.router.num_groups, .redundant_experts = settings.redundant_experts});
    if (refusal) {
      return Error{.code = Code::kUsage, .thing = "--placement round-robin", .found = *refusal};
    }
  }
  LODE_TRY(const placement::ExpertMap map, map_of(spec.router, settings));
  return std::vector<placement::ExpertMap>(spec.num_layers, map);
}

// A bank has a record for every slot, so that any expert can come into it.
Status check_full(const placement::ExpertMap& map) {
  if (map.filled_slots() == map.slots()) return {};
  const std::size_t missing = map.slots() - map.experts();
  return Error{.code = Code::kUsage,
               .thing = "--balance",
               .wanted = "an expert in every slot of every rank",
               .found = fmt::format("{} in {} slots", map.filled_slots(), map.slots()),
               .hint = fmt::format("--redundant-experts {} fills them", missing)};
}

}  // namespace

RankSettings settings_of(const comm::Group& group, bool one_process) {
  RankSettings settings{.ranks = static_cast<std::uint32_t>(group.size()),
                        .rank = static_cast<std::uint32_t>(group.rank()),
                        .ranks_here = 0,
                        .one_process = one_process};
  const std::size_t node = group.node_of(group.rank());
  for (std::uint32_t rank = 0; rank < settings.ranks; ++rank) {
    if (group.node_of(rank) != node) continue;
    if (settings.ranks_here++ == 0) settings.first_here = rank;
  }
  return settings;
}

Result<std::vector<placement::ExpertMap>> expert_maps(const families::ModelSpec& spec,
                                                      const RankSettings& settings) {
  if (settings.ranks == 1) return std::vector<placement::ExpertMap>{};
  if (spec.router.num_experts == 0) return no_experts(settings.ranks);
  LODE_TRY(std::vector<placement::ExpertMap> maps,
           settings.maps.empty() ? made_maps(spec, settings) : check_maps(spec, settings));
  if (!settings.balance) return maps;
  for (const placement::ExpertMap& map : maps) LODE_TRY_STATUS(check_full(map));
  return maps;
}

loader::ExpertSlots slots_of(const std::vector<placement::ExpertMap>& maps, std::size_t rank) {
  loader::ExpertSlots slots;
  for (const placement::ExpertMap& map : maps) slots.push_back(moe::experts_of_rank(map, rank));
  return slots;
}

std::uint64_t table_bytes(const std::vector<placement::ExpertMap>& maps) {
  std::uint64_t bytes = 0;
  for (const placement::ExpertMap& map : maps) {
    const std::uint64_t nearest = (map.experts() + 1 + map.filled_slots()) * sizeof(std::int32_t);
    bytes += map.table_bytes() + nearest;
  }
  return bytes;
}

Result<bool> any_rank(comm::Group& group, bool own) {
  const std::uint8_t mine = own ? 1 : 0;
  std::vector<std::uint8_t> all(group.size());
  LODE_TRY_STATUS(
      group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  return std::find(all.begin(), all.end(), 1) != all.end();
}

Status check_same(comm::Group& group, std::string_view description) {
  LODE_TRY(const auto other,
           comm::first_other(group, io::crc32c(std::as_bytes(std::span(description)))));
  if (!other) return {};
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("rank {}", *other),
               .wanted = "the checkpoint and the settings of rank 0",
               .found = "others",
               .where = fmt::format("rank {}: {}", group.rank(), description),
               .hint = "start all ranks with the same files and flags"};
}

}  // namespace lode::engine
