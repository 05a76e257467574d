#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lode::placement {

/// Room for the two steps below that is kept between calls, so that planning many layers allocates
/// once. Its contents mean nothing between calls.
struct PackingRoom {
  struct Weighed {
    double weight;
    std::int32_t index;
  };
  std::vector<Weighed> order;
  std::vector<double> pack_weights;
  std::vector<std::int32_t> pack_sizes;
  std::vector<Weighed> heap;
};

/// Deals weights.size() items into packs of equal size: heaviest first (ties: lower item), each
/// into the lightest pack that has room (ties: lower pack). Where a pack takes one item, item i
/// goes to pack i whatever it weighs. Writes for each item its pack and its place there.
///
/// Shapes:  weights, pack_of, place_in_pack [n]; n is a multiple of `packs`, weights are finite.
void pack_evenly(std::span<const double> weights, std::size_t packs,
                 std::span<std::int32_t> pack_of, std::span<std::int32_t> place_in_pack,
                 PackingRoom& room);

/// Gives every expert a slot and every further slot to the expert with the most load for each of
/// its replicas so far (ties: lower expert). Slots 0..experts-1 hold the experts in order.
///
/// Shapes:  load, counts [experts]; expert_of, replica_of [slots], slots >= experts.
void replicate(std::span<const double> load, std::span<std::int32_t> expert_of,
               std::span<std::int32_t> replica_of, std::span<std::int32_t> counts,
               PackingRoom& room);

}  // namespace lode::placement
