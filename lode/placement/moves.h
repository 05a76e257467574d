#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/placement/transfer_plan.h"

namespace lode::placement {

/// One record from a place to a place: a slot of a rank, or an entry of the rank's buffer.
struct Move {
  enum class Place : std::uint8_t {
    kSlot,
    kBuffer,  // where there is one spare record, it is entry 0
  };
  std::int32_t expert = 0;
  std::size_t from_rank = 0, from = 0;  // slot of the rank, or entry of its buffer
  std::size_t to_rank = 0, to = 0;
  Place from_place = Place::kSlot, to_place = Place::kSlot;
  friend bool operator==(const Move&, const Move&) = default;
};

/// A transfer as a list of moves that are right one after the other, in stages: everything into the
/// buffers (one entry for each local copy, then one for each receive), from the buffers to the
/// slots, then the duplicates. Nothing is lost if it ends before the second stage.
///
/// Memory: a rank needs `buffered_records` entries of buffer.
/// Shapes:  plan [ranks]; to [slots].
std::vector<Move> staged_moves(std::span<const RankTransfer> plan,
                               std::span<const std::int32_t> to);

/// The same with one spare record a rank: a slot is overwritten as soon as nobody needs what it
/// holds, and a cycle is opened by putting one of its records aside. As many records go between
/// ranks as in stages. It must run to its end or the map in between be kept.
///
/// Shapes:  plan [ranks]; to [slots].
std::vector<Move> chained_moves(std::span<const RankTransfer> plan,
                                std::span<const std::int32_t> to);

}  // namespace lode::placement
