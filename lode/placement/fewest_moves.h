#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lode::placement {

/// Orders the slots within each rank of a plan so that an expert that the rank holds already keeps
/// its slot; the other experts fill the other slots in the plan's order. No rank's content changes.
///
/// Shapes:  planned, held [slots], slots a multiple of `slots_per_rank`; held may have kNoExpert.
void preserve_slots(std::span<std::int32_t> planned, std::span<const std::int32_t> held,
                    std::size_t slots_per_rank);

/// Which ranks a plan may exchange: those of one node, and whole nodes.
struct RankLabels {
  std::size_t ranks = 1;
  std::size_t nodes = 1;
};

/// Gives the contents of a plan's ranks to those ranks that hold most of them already, then
/// preserves slots: the same plan, with fewest experts sent between ranks. Above
/// kMaxExactAssignment ranks of a node the matching is greedy, so fewest becomes few.
///
/// Shapes:  planned, held [slots], slots a multiple of ranks, ranks of nodes; held may have
///          kNoExpert.
void settle(std::span<std::int32_t> planned, std::span<const std::int32_t> held, RankLabels labels);

}  // namespace lode::placement
