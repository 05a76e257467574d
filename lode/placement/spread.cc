#include "lode/placement/spread.h"

#include <algorithm>
#include <utility>

#include "lode/base/check.h"

namespace lode::placement {
namespace {

using Weighed = PackingRoom::Weighed;

bool lighter(const Weighed& a, const Weighed& b) {
  return a.weight < b.weight || (a.weight == b.weight && a.index > b.index);
}

// A swap must take more than rounding could: two loads of one sum may differ in their last bits.
constexpr double kLeastGain = 1e-12;

}  // namespace

SpreadPlanner::SpreadPlanner(std::size_t experts, const Shape& shape)
    : ranks_(shape.ranks),
      slots_per_rank_(shape.slots / shape.ranks),
      counts_(experts),
      share_(experts),
      order_(experts),
      rank_load_(shape.ranks),
      rank_filled_(shape.ranks),
      copies_(experts * shape.ranks) {}

std::uint16_t& SpreadPlanner::copies(std::size_t expert, std::size_t rank) {
  return copies_[rank * counts_.size() + expert];
}

bool SpreadPlanner::repeats(std::size_t expert, std::size_t rank) const {
  return copies_[rank * counts_.size() + expert] > 0;
}

// As `replicate`, but an expert that every rank could hold gets no more while another has fewer.
void SpreadPlanner::count_replicas(std::span<const float> load) {
  const std::size_t slots = ranks_ * slots_per_rank_;
  std::ranges::fill(counts_, std::size_t{1});
  order_.resize(load.size());
  for (std::size_t e = 0; e < load.size(); ++e) {
    const double wanted = ranks_ == 1 ? -1.0 : static_cast<double>(load[e]);
    order_[e] = {wanted, static_cast<std::int32_t>(e)};
  }
  std::ranges::make_heap(order_, lighter);
  for (std::size_t slot = load.size(); slot < slots; ++slot) {
    std::ranges::pop_heap(order_, lighter);
    Weighed& most = order_.back();
    const auto expert = static_cast<std::size_t>(most.index);
    const auto count = static_cast<double>(++counts_[expert]);
    most.weight = counts_[expert] < ranks_ ? static_cast<double>(load[expert]) / count : -count;
    std::ranges::push_heap(order_, lighter);
  }
  for (std::size_t e = 0; e < load.size(); ++e)
    share_[e] = static_cast<double>(load[e]) / static_cast<double>(counts_[e]);
}

// Ranks where there is none.
std::size_t SpreadPlanner::lightest_rank(std::size_t expert, bool lacking) const {
  std::size_t best = ranks_;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank_filled_[rank] == slots_per_rank_ || (lacking && repeats(expert, rank))) continue;
    if (best == ranks_ || rank_load_[rank] < rank_load_[best]) best = rank;
  }
  return best;
}

void SpreadPlanner::place(std::int32_t expert, std::span<std::int32_t> physical_to_logical) {
  const auto index = static_cast<std::size_t>(expert);
  std::size_t rank = lightest_rank(index, true);
  if (rank == ranks_) rank = lightest_rank(index, false);
  LODE_CHECK(rank < ranks_, "there are as many slots as replicas");
  physical_to_logical[rank * slots_per_rank_ + rank_filled_[rank]++] = expert;
  rank_load_[rank] += share_[index];
  ++copies(index, rank);
}

SpreadPlanner::Swap SpreadPlanner::best_swap(
    std::size_t rank, std::span<const std::int32_t> physical_to_logical) const {
  const double heaviest = rank_load_[rank];
  Swap best{.heavier = heaviest * (1 - kLeastGain)};
  for (std::size_t slot = rank * slots_per_rank_; slot < (rank + 1) * slots_per_rank_; ++slot) {
    const auto expert = static_cast<std::size_t>(physical_to_logical[slot]);
    for (std::size_t other = 0; other < physical_to_logical.size(); ++other) {
      const auto its = static_cast<std::size_t>(physical_to_logical[other]);
      const double moved = share_[expert] - share_[its];
      if (moved <= 0) continue;
      const std::size_t there = other / slots_per_rank_;
      const double heavier = std::max(heaviest - moved, rank_load_[there] + moved);
      if (heavier >= best.heavier || there == rank) continue;
      if (repeats(expert, there) || repeats(its, rank)) continue;
      best = {.slot = slot, .other = other, .heavier = heavier};
    }
  }
  return best;
}

void SpreadPlanner::improve(std::span<std::int32_t> physical_to_logical) {
  for (std::size_t step = 0; step < physical_to_logical.size(); ++step) {
    const auto rank =
        static_cast<std::size_t>(std::ranges::max_element(rank_load_) - rank_load_.begin());
    const Swap swap = best_swap(rank, physical_to_logical);
    if (swap.slot == swap.other) return;  // none was found
    const std::size_t there = swap.other / slots_per_rank_;
    const auto given = static_cast<std::size_t>(physical_to_logical[swap.slot]);
    const auto taken = static_cast<std::size_t>(physical_to_logical[swap.other]);
    rank_load_[rank] -= share_[given] - share_[taken];
    rank_load_[there] += share_[given] - share_[taken];
    --copies(given, rank), ++copies(given, there);
    --copies(taken, there), ++copies(taken, rank);
    std::swap(physical_to_logical[swap.slot], physical_to_logical[swap.other]);
  }
}

void SpreadPlanner::plan_layer(std::span<const float> load,
                               std::span<std::int32_t> physical_to_logical) {
  LODE_CHECK(load.size() == counts_.size(), "a load for every expert");
  LODE_CHECK(physical_to_logical.size() == ranks_ * slots_per_rank_, "an expert for every slot");
  count_replicas(load);
  std::ranges::fill(rank_load_, 0.0);
  std::ranges::fill(rank_filled_, std::size_t{0});
  std::ranges::fill(copies_, std::uint16_t{0});
  for (std::size_t e = 0; e < load.size(); ++e)
    order_[e] = {share_[e], static_cast<std::int32_t>(e)};
  std::ranges::sort(order_, [](const Weighed& a, const Weighed& b) { return lighter(b, a); });
  for (const Weighed& expert : order_) {
    for (std::size_t replica = 0; replica < counts_[static_cast<std::size_t>(expert.index)];
         ++replica)
      place(expert.index, physical_to_logical);
  }
  improve(physical_to_logical);
}

}  // namespace lode::placement
