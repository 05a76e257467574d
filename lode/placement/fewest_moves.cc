#include "lode/placement/fewest_moves.h"

#include <algorithm>
#include <utility>

#include "lode/base/check.h"
#include "lode/placement/assignment.h"
#include "lode/placement/expert_map.h"

namespace lode::placement {
namespace {

void preserve_rank(std::span<std::int32_t> planned, std::span<const std::int32_t> held,
                   std::vector<std::int32_t>& rest) {
  rest.assign(planned.begin(), planned.end());
  std::ranges::fill(planned, kNoExpert);
  for (std::size_t slot = 0; slot < held.size(); ++slot) {
    const auto kept = std::ranges::find(rest, held[slot]);
    if (held[slot] == kNoExpert || kept == rest.end()) continue;
    planned[slot] = *kept;
    rest.erase(kept);
  }
  auto next = rest.begin();
  for (std::int32_t& slot : planned)
    if (slot == kNoExpert && next != rest.end()) slot = *next++;
}

// Distinct experts that a planned rank shares with a rank that holds some: [ranks, ranks].
std::vector<std::int64_t> shared_experts(std::span<const std::int32_t> planned,
                                         std::span<const std::int32_t> held, std::size_t ranks) {
  const std::size_t slots_per_rank = planned.size() / ranks;
  const auto most = std::max(std::ranges::max(planned), std::ranges::max(held));
  const auto experts = static_cast<std::size_t>(std::max(most, 0)) + 1;
  std::vector<std::vector<std::size_t>> ranks_of(experts);  // that hold an expert, rising
  for (std::size_t slot = 0; slot < held.size(); ++slot) {
    if (held[slot] == kNoExpert) continue;
    auto& list = ranks_of[static_cast<std::size_t>(held[slot])];
    if (list.empty() || list.back() != slot / slots_per_rank) list.push_back(slot / slots_per_rank);
  }
  std::vector<std::int64_t> shared(ranks * ranks);
  std::vector<std::size_t> seen(experts, ranks);  // the last rank that an expert was counted for
  for (std::size_t slot = 0; slot < planned.size(); ++slot) {
    if (planned[slot] == kNoExpert) continue;
    const auto expert = static_cast<std::size_t>(planned[slot]);
    const std::size_t rank = slot / slots_per_rank;
    if (std::exchange(seen[expert], rank) == rank) continue;
    for (const std::size_t holder : ranks_of[expert]) ++shared[rank * ranks + holder];
  }
  return shared;
}

// The ranks of planned node `from` among those of node `to`: for each its place, and the gain.
struct NodeMatch {
  std::vector<std::size_t> place;
  std::int64_t gain = 0;
};
NodeMatch match_nodes(std::span<const std::int64_t> shared, RankLabels labels, std::size_t from,
                      std::size_t to) {
  const std::size_t width = labels.ranks / labels.nodes;
  std::vector<std::int64_t> gains(width * width);
  for (std::size_t i = 0; i < width * width; ++i)
    gains[i] = shared[(from * width + i / width) * labels.ranks + to * width + i % width];
  NodeMatch match{.place = assign(gains, width)};
  for (std::size_t i = 0; i < width; ++i) match.gain += gains[i * width + match.place[i]];
  return match;
}

// For each planned rank the rank that takes its content.
std::vector<std::size_t> new_labels(std::span<const std::int64_t> shared, RankLabels labels) {
  const std::size_t nodes = labels.nodes;
  const std::size_t width = labels.ranks / nodes;
  std::vector<NodeMatch> matches;
  std::vector<std::int64_t> gains;
  for (std::size_t i = 0; i < nodes * nodes; ++i) {
    matches.push_back(match_nodes(shared, labels, i / nodes, i % nodes));
    gains.push_back(matches.back().gain);
  }
  const std::vector<std::size_t> node_of = assign(gains, nodes);
  std::vector<std::size_t> label(labels.ranks);
  for (std::size_t rank = 0; rank < labels.ranks; ++rank) {
    const std::size_t from = rank / width;
    const NodeMatch& match = matches[from * nodes + node_of[from]];
    label[rank] = node_of[from] * width + match.place[rank % width];
  }
  return label;
}

}  // namespace

void preserve_slots(std::span<std::int32_t> planned, std::span<const std::int32_t> held,
                    std::size_t slots_per_rank) {
  LODE_CHECK(planned.size() == held.size() && planned.size() % slots_per_rank == 0,
             "both maps have the same ranks");
  std::vector<std::int32_t> rest;
  for (std::size_t slot = 0; slot < planned.size(); slot += slots_per_rank)
    preserve_rank(planned.subspan(slot, slots_per_rank), held.subspan(slot, slots_per_rank), rest);
}

void settle(std::span<std::int32_t> planned, std::span<const std::int32_t> held,
            RankLabels labels) {
  LODE_CHECK(planned.size() == held.size() && planned.size() % labels.ranks == 0 &&
                 labels.ranks % labels.nodes == 0,
             "both maps have the same ranks");
  if (planned.empty()) return;
  const std::size_t slots_per_rank = planned.size() / labels.ranks;
  const std::vector<std::int32_t> old(planned.begin(), planned.end());
  const auto label = new_labels(shared_experts(planned, held, labels.ranks), labels);
  for (std::size_t rank = 0; rank < labels.ranks; ++rank) {
    const auto content = std::span(old).subspan(rank * slots_per_rank, slots_per_rank);
    std::ranges::copy(content, planned.subspan(label[rank] * slots_per_rank).begin());
  }
  preserve_slots(planned, held, slots_per_rank);
}

}  // namespace lode::placement
