#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/eplb/decision.h"
#include "lode/eplb/expert_load.h"
#include "lode/eplb/migration.h"
#include "lode/memory/ledger.h"
#include "lode/moe/expert_places.h"
#include "lode/placement/accept.h"
#include "lode/placement/expert_times.h"
#include "lode/placement/policies.h"
#include "lode/placement/step_clock.h"

namespace lode::eplb {

/// The same on all ranks, but for `costs`: those of rank 0 count, and of rows and experts only
/// until times were measured.
struct RebalanceOptions {
  placement::Policy policy = placement::Policy::kBest;
  std::size_t nodes = 1;   // of the policy
  std::size_t groups = 1;  // of experts, likewise
  std::int64_t interval_passes = 3000;
  std::int64_t window_passes = 1000;  // before each decision that are counted
  double half_life_passes = 1000;     // after which a pass counts half
  placement::Costs costs;             // expert_bytes is each layer's own
  double threshold = 1;               // a move must save more than this many times what it takes
  MigrationOptions migration;
};

/// The writable records of this rank, one for every slot. A layer without experts has none, and
/// where a file that all ranks map holds the experts (ExpertPlaces::whole_banks) no layer has.
struct LayerBank {
  std::span<std::byte> bytes;
  std::uint64_t record_bytes = 0;  // 0: no experts
};

/// What after_pass() did.
struct PassReport {
  std::optional<Decision> decision;
  std::size_t layer = 0;  // that moves
  StepReport step;
  std::size_t layers_left = 0;  // that are accepted and have not come, with that one
  std::optional<Error>
      failure;  // of a migration: the other layers are given up until the next look
  std::chrono::nanoseconds spent{0};  // in after_pass(), waiting for other ranks included
};

/// Watches which experts are chosen, decides when and how to spread them anew, and has them moved:
/// all state of balancing, for every family. The engine calls it between passes; the runner asks
/// moe::ExpertPlaces as ever. Every rank decides alike, from sums that are the same bits on all.
///
/// Of a layer is moved what saves more time until the next look than moving takes (fewest moves:
/// placement::plan); those that save most come first, one layer at a time, beside the passes.
/// Where all ranks map the experts nothing has to move: a look changes the maps alone, at once.
///
/// Memory:  balancing_cost(). With one rank nothing at all, and no call does anything.
class Rebalancer {
 public:
  /// Collective. `places` and `ledger` outlive it, and so does what the banks are of.
  ///
  /// Errors:  the same on all ranks: kUsage for banks that are not as many as layers or lack
  ///          records for slots, for layers of other sizes, for a step smaller than a record, for a
  ///          shape that placement::check_shape refuses, and for a half-life that is none;
  ///          kOverBudget, also for what moving would take; kIo; those of comm::Group.
  static Result<Rebalancer> make(moe::ExpertPlaces& places, memory::Ledger& ledger,
                                 std::vector<LayerBank> banks, const RebalanceOptions& options);
  Rebalancer(Rebalancer&&) noexcept;
  ~Rebalancer();

  bool active() const noexcept { return state_ != nullptr; }
  /// Whether the running pass is to be counted.
  bool recording() const noexcept;
  /// Where the running pass is counted: choices of each expert by the rows that this rank owns.
  /// Shapes:  [layers][experts]; empty where not active.
  std::span<std::uint32_t> pass_counts() noexcept;

  /// What this rank has measured: the next look goes by the times of all ranks together.
  void set_times(const placement::ExpertTimes& times) noexcept;

  /// Has every layer moved to the map given, whatever it saves; what was to be moved before is
  /// given up but for the layer on its way. Looks go on as ever. Collective.
  ///
  /// Shapes:  maps [layers], those of layers without experts are ignored.
  /// Errors:  the same on all ranks: kUsage for maps that check_target refuses, or that are not the
  ///          same on all ranks; those of comm::Group.
  Status adopt(std::vector<placement::ExpertMap> maps);

  /// After each pass, also one without rows, on every rank. Collective.
  /// Errors:  those of comm::Group, of which passes cannot go on. A migration that failed alone is
  ///          told in the report.
  Result<PassReport> after_pass();

  /// The load as the next look would see it: rows of each expert in one pass. Collective.
  /// Shapes:  the result [layers][experts].
  /// Errors:  those of comm::Group.
  Result<std::vector<float>> rows_of_a_pass();

  /// Ends what is on its way, dropping it. Collective; before the last rank leaves.
  /// Errors:  those of comm::Group.
  Status finish();

 private:
  struct State;
  explicit Rebalancer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Maps in one number, by which ranks see whether they have the same.
std::uint32_t digest_of(std::span<const placement::ExpertMap> maps);

/// Whether a layer can move from one map to the other: of as many experts, slots and ranks, every
/// slot of the new one with an expert. Errors:  kUsage naming the layer.
Status check_target(std::size_t layer, const placement::ExpertMap& now,
                    const placement::ExpertMap& next);

/// What decides how much a rank's ledger holds for balancing.
struct BalancingShape {
  LoadShape load;
  std::size_t slots_per_rank = 1;
  std::uint64_t record_bytes = 0;  // the largest of all layers
  std::uint64_t step_bytes = 0;
};

/// The most that the ledger holds for a Rebalancer: tables all the time, the rest while experts
/// move. Nothing for one rank.
struct BalancingCost {
  std::uint64_t table_bytes = 0;        // metadata
  std::uint64_t table_page_bytes = 0;   // page tables of those
  std::uint64_t moving_bytes = 0;       // staging
  std::uint64_t moving_page_bytes = 0;  // page tables of that
};
BalancingCost balancing_cost(const BalancingShape& shape) noexcept;

}  // namespace lode::eplb
