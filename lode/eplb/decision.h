#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/placement/accept.h"
#include "lode/placement/expert_map.h"

namespace lode::eplb {

/// What was decided about a layer. Rows are of one pass, expected from what was counted.
/// Shapes:  rows_before, rows_after [ranks].
struct LayerDecision {
  std::size_t layer = 0;
  placement::Verdict verdict;
  std::vector<double> rows_before, rows_after;
  std::uint64_t moved_records = 0, moved_bytes = 0;  // between ranks, where it is accepted
};

/// One look at the load, the same on all ranks. `before` tells also what the last one came to.
struct Decision {
  std::vector<LayerDecision> layers;  // with experts
  /// Passes since the last look that were counted, and choices of experts in them: exact.
  std::size_t counted_passes = 0;
  std::uint64_t counted_choices = 0;
  /// Of these choices alone, had all their passes run with the maps of now.
  double balancedness_counted = 0;
  double balancedness_before = 0;
  double balancedness_after = 0;  // predicted, with the accepted layers moved
  std::size_t accepted_layers = 0;
  std::uint64_t moved_records = 0, moved_bytes = 0;
};

/// A layer whose experts may move.
/// Shapes:  rows [experts], of one pass.
struct LayerChoice {
  std::size_t layer = 0;
  const placement::ExpertMap* now = nullptr;
  const placement::ExpertMap* next = nullptr;
  std::span<const float> rows;
};

/// Whether the next map of a layer is worth its moves. `costs.expert_bytes` are those of the layer.
///
/// Errors:  kUsage where the maps are of other sizes.
Result<LayerDecision> decide(const LayerChoice& choice, const placement::Costs& costs,
                             const placement::Acceptance& rule);

/// What the layers' decisions come to. Balancedness is 0 where nothing was counted.
Decision summed(std::vector<LayerDecision> layers);

/// The accepted layers of a decision, those first that save most beyond what moving them takes.
std::vector<std::size_t> in_order_of_gain(const Decision& decision);

}  // namespace lode::eplb
