#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"

namespace lode::placement {

/// A record that stays on its rank: from one slot of the rank to another.
struct LocalCopy {
  std::int32_t from_slot = 0, to_slot = 0;
  friend bool operator==(const LocalCopy&, const LocalCopy&) = default;
};
/// A record that leaves, and one that comes. Slots are those of the rank whose plan it is.
struct Send {
  std::int32_t expert = 0, from_slot = 0, to_rank = 0;
  friend bool operator==(const Send&, const Send&) = default;
};
struct Receive {
  std::int32_t expert = 0, from_rank = 0, to_slot = 0;
  friend bool operator==(const Receive&, const Receive&) = default;
};

/// What one rank does when a layer goes from one map to another. In this order it is right: read
/// every local copy and every record received into a buffer (and send from the slots as they are),
/// copy the buffer to the slots, then make the duplicates from slots that are already new.
struct RankTransfer {
  std::vector<std::int32_t> unchanged;  // slots
  std::vector<LocalCopy> local_copies;  // of what the rank held, in the order of the new slots
  std::vector<Send> sends;              // by rising expert, so that both sides match
  std::vector<Receive> receives;        // by rising expert; an expert is received once
  std::vector<LocalCopy> duplicates;    // of what it received: where it is needed once more
};

/// The plan of every rank. Those that hold an expert serve those that lack it in equal shares; a
/// slot that becomes empty takes part in nothing.
///
/// Errors: kUsage where the maps are of other sizes or do not divide by ranks, and where the new
/// one has an expert that the old one nowhere holds.
/// Shapes:  from, to [slots]: the expert of each slot, or kNoExpert.
/// Source:  moe_runner_eplb 5.9; tests/golden/eplb.json, transfer_plan.
Result<std::vector<RankTransfer>> plan_transfer(std::span<const std::int32_t> from,
                                                std::span<const std::int32_t> to,
                                                std::size_t ranks);

/// Records that a plan sends between ranks.
std::size_t sent_records(std::span<const RankTransfer> plan);
/// Records that a rank must buffer when it runs its plan in stages: local copies and receives.
std::size_t buffered_records(const RankTransfer& plan);

}  // namespace lode::placement
