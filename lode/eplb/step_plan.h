#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lode/placement/expert_map.h"

namespace lode::eplb {

/// A record that goes from a slot of one rank to another rank. Slots are counted in the rank.
struct RecordMove {
  std::int32_t expert = 0;
  std::size_t from_rank = 0, from_slot = 0;
  std::size_t to_rank = 0;
  friend bool operator==(const RecordMove&, const RecordMove&) = default;
};

/// What is moved at once: records into buffers first, then everything in its slot.
struct MigrationStep {
  std::vector<RecordMove> moves;  // the i-th one to a rank comes into entry i of its buffer
  placement::ExpertMap next;      // the map when the step is done
};

/// The records that a rank must receive, in all steps together: experts that it shall hold and
/// does not. An expert that it needs several times is received once.
std::size_t records_to_receive(const placement::ExpertMap& from, const placement::ExpertMap& to,
                               std::size_t rank);

/// The next step from one map to another, of which no rank receives or sends more than
/// `max_records` (at least 1). Taken again and again it comes to `to`; every map on the way holds
/// every expert, and together no more records are sent between ranks than in one step. Within a
/// rank records are rearranged as well. Empty slots of the maps on the way need not be a rank's
/// last.
///
/// A step takes what has room: a slot whose record lies elsewhere too, or is not wanted where it
/// is and has come to where it is. Where no rank has room, ranks exchange records in a circle.
///
/// Memory:  two bytes for each pair of expert and rank, a few numbers a slot.
/// Both maps are of the same experts, slots and ranks.
MigrationStep next_step(const placement::ExpertMap& from, const placement::ExpertMap& to,
                        std::size_t max_records);

}  // namespace lode::eplb
