#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/balance_log.h"
#include "lode/engine/ranks.h"
#include "lode/eplb/rebalancer.h"
#include "lode/families/router_spec.h"
#include "lode/loader/weight_set.h"
#include "lode/memory/ledger.h"
#include "lode/moe/expert_places.h"
#include "lode/moe/layer_watch.h"
#include "lode/parallel/function_ref.h"

namespace lode::engine {

/// Balances the experts of a model that runs: notes what its layers do, asks the rebalancer after
/// each pass and keeps the account. Of more ranks than one.
class Balancer {
  struct Key {};  // only `make` makes one

 public:
  Balancer(Key, moe::ExpertPlaces& places, memory::Reservation reservation);
  /// Collective. Everything by reference outlives it.
  ///
  /// Memory:  balancing_cost() of the same.
  /// Errors:  the same on all ranks: those of eplb::Rebalancer::make.
  static Result<std::unique_ptr<Balancer>> make(moe::ExpertPlaces& places, memory::Ledger& ledger,
                                                loader::WeightSet& weights,
                                                const families::RouterSpec& router,
                                                const BalanceSettings& settings);
  Balancer(const Balancer&) = delete;
  Balancer& operator=(const Balancer&) = delete;
  ~Balancer();

  /// After each pass of the model, which took so long. Collective.
  /// Errors:  those of comm::Group. A migration that fails alone is noted.
  Status after_pass(std::chrono::nanoseconds spent);

  /// Moves every layer to the map given, whatever it saves: beside passes if there are some, the
  /// rest by settle(). Collective. Errors:  those of eplb::Rebalancer::adopt.
  Status adopt(std::vector<placement::ExpertMap> maps);
  /// Returns when all that was to be moved has come. Collective.
  /// Errors:  that of a migration that has failed since adopt(), which keeps its old map;
  ///          kInterrupted where a rank's `go_on` says no; those of comm::Group.
  Status settle(parallel::FunctionRef<bool()> go_on);

  /// Drops what is on its way and tells what came of it all. Collective; passes may go on.
  /// Errors:  those of comm::Group.
  Result<BalanceLog> finish();

 private:
  placement::ExpertTimes times() const;
  void note(const eplb::PassReport& report);
  BalanceFigures figures() const;

  moe::ExpertPlaces& places_;
  memory::Reservation reservation_;
  std::vector<moe::LayerWatch> watches_;  // [layers]
  std::optional<eplb::Rebalancer> rebalancer_;
  Status failed_;  // since adopt()
  BalanceLog log_;
  BalanceFigures own_;
  std::deque<BalanceLook> looks_;  // the last ones
};

/// What a Balancer takes of the ledger: of models whose largest record is so large, 0 where all
/// ranks map the experts.
eplb::BalancingCost balancing_cost(const std::vector<placement::ExpertMap>& maps,
                                   std::uint64_t record_bytes, const BalanceSettings& settings);

}  // namespace lode::engine
