#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/placement/expert_map.h"
#include "lode/placement/transfer_plan.h"

namespace lode::placement {

/// What a machine needs for one row of one expert and for one byte.
struct Costs {
  double seconds_per_row = 0;           // of a token through an expert, on one rank
  double seconds_per_expert = 0;        // of an expert in use, on one rank: its weights are read
  double seconds_per_layer = 0;         // whatever is in it: exchange, router
  double bytes_per_second = 1e9;        // that a rank can send, or receive
  double copy_bytes_per_second = 1e10;  // from slot to slot of a rank
  std::uint64_t expert_bytes = 0;       // a record: all tensors of an expert of one layer
};

/// Seconds that moving takes where ranks move at the same time and layers one after the other: for
/// each layer those of its slowest rank, which sends and receives at once and copies besides.
///
/// Shapes:  plan [ranks], of one layer.
double transfer_seconds(std::span<const RankTransfer> plan, const Costs& costs) noexcept;

/// Seconds of the experts of one layer in one step: of its slowest rank, whose rows cost and whose
/// experts in use do. The rows of an expert are split evenly over its replicas.
///
/// Shapes:  rows [experts], of one step.
double layer_seconds(const ExpertMap& map, std::span<const float> rows,
                     const Costs& costs) noexcept;

struct Acceptance {
  double steps = 1;      // until the next rebalancing
  double threshold = 1;  // a plan must save more than this many times what moving takes
};

/// Whether a plan is worth its moves, and both sides of that.
struct Verdict {
  bool accepted = false;
  double saved_seconds = 0;     // over all steps of the interval
  double transfer_seconds = 0;  // once
};

/// `max_rows_before` and `max_rows_after` are rows of the fullest rank in one step, summed over
/// layers (`Balance::max` of a load of one step). A plan that saves nothing is never accepted.
Verdict judge(double max_rows_before, double max_rows_after, double transfer_seconds,
              const Costs& costs, const Acceptance& rule) noexcept;
/// The same for a step whose seconds are known before and after.
Verdict judge_seconds(double step_seconds_before, double step_seconds_after,
                      double transfer_seconds, const Acceptance& rule) noexcept;

}  // namespace lode::placement
