#include "lode/placement/replica.h"

#include <algorithm>

#include "lode/base/check.h"

namespace lode::placement {
namespace {

bool valid(std::int32_t id, std::size_t experts) {
  return id >= 0 && static_cast<std::size_t>(id) < experts;
}

}  // namespace

void choose_by_hash(const ExpertMap& map, const RoutedRows& rows, std::span<std::int32_t> slots,
                    std::span<std::int32_t> load) {
  LODE_CHECK(slots.size() == rows.experts.size() && rows.top_k > 0, "a slot for every id");
  LODE_CHECK(load.empty() || load.size() == map.slots(), "a count for every slot");
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i] = -1;
    if (!valid(rows.experts[i], map.experts())) continue;
    const std::size_t row = i / rows.top_k;
    const auto replicas = map.slots_of(static_cast<std::size_t>(rows.experts[i]));
    slots[i] = replicas[knuth_hash(row) % replicas.size()];
    if (row < rows.counted_rows && !load.empty()) ++load[static_cast<std::size_t>(slots[i])];
  }
}

void count_experts(const RoutedRows& rows, std::span<std::uint32_t> load) {
  const std::size_t counted = std::min(rows.experts.size(), rows.counted_rows * rows.top_k);
  for (const std::int32_t id : rows.experts.first(counted))
    if (valid(id, load.size())) ++load[static_cast<std::size_t>(id)];
}

NearReplicas::NearReplicas(const ExpertMap& map, std::size_t rank, std::size_t ranks_per_node)
    : begins_(1), rank_(rank) {
  LODE_CHECK(rank < map.ranks() && ranks_per_node > 0, "the rank is one of the map's");
  for (std::size_t expert = 0; expert < map.experts(); ++expert) {
    const auto all = map.slots_of(expert);
    const std::size_t before = slots_.size();
    const auto take = [&](auto&& near) {
      if (slots_.size() > before) return;
      for (const std::int32_t slot : all)
        if (near(map.rank_of(static_cast<std::size_t>(slot)))) slots_.push_back(slot);
    };
    take([&](std::size_t holder) { return holder == rank; });
    take([&](std::size_t holder) { return holder / ranks_per_node == rank / ranks_per_node; });
    take([](std::size_t) { return true; });
    begins_.push_back(static_cast<std::int32_t>(slots_.size()));
  }
}

void NearReplicas::choose(std::span<const std::int32_t> ids, std::span<std::int32_t> slots,
                          std::span<std::uint32_t> turns) const {
  LODE_CHECK(slots.size() == ids.size() && turns.size() == experts(), "a slot for every id");
  std::ranges::fill(turns, static_cast<std::uint32_t>(rank_));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    slots[i] = -1;
    if (!valid(ids[i], experts())) continue;
    const auto expert = static_cast<std::size_t>(ids[i]);
    const auto near = slots_of(expert);
    slots[i] = near[turns[expert]++ % near.size()];
  }
}

}  // namespace lode::placement
