#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lode/json/json.h"
#include "lode/placement/accept.h"
#include "lode/placement/expert_times.h"

namespace lode::engine {

/// One look at the load: what was expected of the maps and what came of them.
struct BalanceLook {
  std::uint64_t pass = 0;
  /// Of the passes since the last look, with the maps of now: what came of the last look's promise.
  double balancedness_counted = 0;
  double balancedness_before = 0;
  double balancedness_predicted = 0;  // when the accepted layers have moved
  std::uint64_t accepted_layers = 0;
  std::uint64_t moved_records = 0, moved_bytes = 0;
};

/// What one rank did in one layer of a run.
struct LayerFigures {
  std::uint64_t rows = 0;  // its experts computed
  std::uint64_t computing_ns = 0;
  std::uint64_t exchanging_ns = 0;  // mostly waiting for other ranks
};

/// What balancing took of one rank, and what experts cost it.
struct BalanceFigures {
  std::uint64_t passes_ns = 0;     // of the model
  std::uint64_t balancing_ns = 0;  // between passes: agreeing, copying, deciding
  std::uint64_t copying_ns = 0;    // of that
  std::uint64_t received_bytes = 0;
  placement::ExpertTimes times{};  // of its experts
};

/// The account of balancing of a run; every rank has it of all.
struct BalanceLog {
  std::size_t layers = 0;  // of the model
  std::size_t ranks = 1;
  std::vector<float> rows_of_a_pass;  // [layers][experts], the newest passes weigh most
  std::uint64_t passes = 0, looks = 0;
  std::uint64_t layers_moved = 0;  // that have come to where a look wanted them
  std::uint64_t failures = 0;
  std::string last_failure;
  std::vector<BalanceLook> last_looks;
  std::vector<BalanceFigures> rank_figures;  // [ranks]
  std::vector<LayerFigures> layer_figures;   // [ranks][layers]

  std::uint64_t received_bytes() const;  // of all ranks
  /// What a simulation of this machine takes: a row and an expert by the times of all ranks
  /// together, and what a pass took beside them in each layer with experts.
  placement::Costs costs() const;
  /// Of the rows that ranks computed, over the whole run. Shapes:  the result [layers].
  std::vector<double> layer_balancedness() const;
};
/// Also a file of loads (BalanceLoads), of one step: what planning takes.
json::Value as_json(const BalanceLog& log);
/// A few lines for people.
std::string as_text(const BalanceLog& log);

}  // namespace lode::engine
