#include "lode/placement/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lode/base/check.h"

namespace lode::placement {
namespace {

using Weighed = PackingRoom::Weighed;

constexpr double kFull = std::numeric_limits<double>::infinity();

bool heavier(const Weighed& a, const Weighed& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.index < b.index);
}

// The lightest pack; few packs, so looking at all of them, without a branch to guess, is fastest.
// What is full weighs infinitely much.
std::size_t lightest(std::span<const double> pack_weights) {
  std::size_t best = 0;
  double least = pack_weights[0];
  for (std::size_t pack = 1; pack < pack_weights.size(); ++pack) {
    const bool lighter = pack_weights[pack] < least;
    best = lighter ? pack : best;
    least = lighter ? pack_weights[pack] : least;
  }
  return best;
}

// The place of each item is how many come before it. That grows with the square, but it is plain
// arithmetic without a branch to guess, and the replicas of a node are few.
constexpr std::size_t kMaxCounted = 128;
void order_by_counting(std::span<const double> weights, std::span<Weighed> order) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    std::int64_t before = 0;
    for (std::size_t j = 0; j < i; ++j) before += weights[j] >= weight;
    for (std::size_t j = i + 1; j < weights.size(); ++j) before += weights[j] > weight;
    order[static_cast<std::size_t>(before)] = {weight, static_cast<std::int32_t>(i)};
  }
}

void order_by_weight(std::span<const double> weights, std::vector<Weighed>& order) {
  order.resize(weights.size());
  if (weights.size() <= kMaxCounted) return order_by_counting(weights, order);
  for (std::size_t i = 0; i < weights.size(); ++i)
    order[i] = {weights[i], static_cast<std::int32_t>(i)};
  std::ranges::sort(order, heavier);
}

// The top of a heap goes down to where it belongs after it became lighter.
void sift_down(std::vector<Weighed>& heap) {
  const Weighed moved = heap.front();
  std::size_t at = 0;
  for (std::size_t child = 1; child < heap.size(); child = 2 * at + 1) {
    if (child + 1 < heap.size() && heavier(heap[child + 1], heap[child])) ++child;
    if (!heavier(heap[child], moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

}  // namespace

void pack_evenly(std::span<const double> weights, std::size_t packs,
                 std::span<std::int32_t> pack_of, std::span<std::int32_t> place_in_pack,
                 PackingRoom& room) {
  const std::size_t items = weights.size();
  LODE_CHECK(packs > 0 && items % packs == 0, "packs take equally many items");
  if (items == packs) {
    std::iota(pack_of.begin(), pack_of.end(), 0);
    std::ranges::fill(place_in_pack, 0);
    return;
  }
  order_by_weight(weights, room.order);
  room.pack_weights.assign(packs, 0.0);
  room.pack_sizes.assign(packs, 0);
  const auto capacity = static_cast<std::int32_t>(items / packs);
  for (const Weighed& item : room.order) {
    const std::size_t pack = lightest(room.pack_weights);
    const auto index = static_cast<std::size_t>(item.index);
    pack_of[index] = static_cast<std::int32_t>(pack);
    place_in_pack[index] = room.pack_sizes[pack]++;
    const bool full = room.pack_sizes[pack] == capacity;
    room.pack_weights[pack] = full ? kFull : room.pack_weights[pack] + item.weight;
  }
}

void replicate(std::span<const double> load, std::span<std::int32_t> expert_of,
               std::span<std::int32_t> replica_of, std::span<std::int32_t> counts,
               PackingRoom& room) {
  const std::size_t experts = load.size();
  LODE_CHECK(expert_of.size() >= experts, "every expert has a slot");
  std::iota(expert_of.begin(), expert_of.begin() + static_cast<std::ptrdiff_t>(experts), 0);
  std::ranges::fill(replica_of.first(experts), 0);
  std::ranges::fill(counts, 1);
  if (expert_of.size() == experts) return;
  room.heap.resize(experts);
  for (std::size_t e = 0; e < experts; ++e) room.heap[e] = {load[e], static_cast<std::int32_t>(e)};
  std::ranges::make_heap(room.heap, [](const auto& a, const auto& b) { return heavier(b, a); });
  for (std::size_t slot = experts; slot < expert_of.size(); ++slot) {
    const auto expert = static_cast<std::size_t>(room.heap.front().index);
    expert_of[slot] = room.heap.front().index;
    replica_of[slot] = counts[expert]++;
    room.heap.front().weight = load[expert] / static_cast<double>(counts[expert]);
    sift_down(room.heap);
  }
}

}  // namespace lode::placement
