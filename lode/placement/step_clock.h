#pragma once

#include <cstdint>

namespace lode::placement {

/// When ranks rebalance and when they count, by the number of passes alone: every rank keeps one
/// and calls it after every pass, so all of them decide alike without asking each other.
class StepClock {
 public:
  /// The first interval is cut to its last quarter, so that a run that begins unbalanced waits
  /// less. `interval` and `window` are passes, at least one.
  StepClock(std::int64_t interval, std::int64_t window) noexcept;

  /// Whether the next pass is to be counted: it lies within `window` of the rebalancing.
  bool recording() const noexcept { return interval_ - step_ <= window_; }
  /// Passes since the last rebalancing.
  std::int64_t step() const noexcept { return step_; }
  std::int64_t interval() const noexcept { return interval_; }

  /// Counts a pass, also one without requests. True where ranks are to rebalance now; a migration
  /// that is still `busy` puts it off until a pass after its end.
  bool after_pass(bool busy = false) noexcept;

 private:
  std::int64_t interval_, window_, step_;
};

}  // namespace lode::placement
