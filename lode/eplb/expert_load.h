#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/memory/buffer.h"
#include "lode/memory/ledger.h"

namespace lode::eplb {

struct LoadShape {
  std::size_t layers = 0;
  std::size_t experts = 0;  // of each layer
  std::size_t ranks = 1;
};

/// How often each expert of each layer was chosen, by its logical id, so that a map may change at
/// any time and no count is charged to another expert. Every rank counts the rows that it owns
/// (moe::rows_of_rank), so that all ranks together count a token once.
///
/// Tables: counts of the running pass, which the model adds to; counts of the running window,
/// exact; sums in which older passes weigh less, and those of all ranks together. Beside them room
/// for what ranks tell each other of one layer.
///
/// Memory:  load_bytes(shape), one buffer of the ledger.
class ExpertLoad {
 public:
  /// `decay` is what remains of a sum after a pass (placement::decay_of_half_life).
  /// Errors: kOverBudget, kIo.
  static Result<ExpertLoad> make(memory::Ledger& ledger, const LoadShape& shape, float decay);

  const LoadShape& shape() const noexcept { return shape_; }

  /// Counts of the running pass: placement::count_experts adds to the row of its layer.
  /// Shapes:  [layers][experts].
  std::span<std::uint32_t> pass_counts() noexcept { return pass_; }
  std::span<const std::uint32_t> window_counts() const noexcept { return window_; }
  std::span<const float> sums() const noexcept { return sums_; }
  std::size_t window_passes() const noexcept { return window_passes_; }
  std::size_t sum_passes() const noexcept { return sum_passes_; }

  /// Adds the pass to the window and to the decayed sums. A pass that is not to be counted is
  /// dropped.
  void end_pass(bool counted = true) noexcept;
  void begin_window() noexcept;
  /// Forgets everything.
  void reset() noexcept;

  /// The decayed sums over ranks, on every rank the same bits: added in rank order in f64, then
  /// rounded. They stay until the next call. Collective. Shapes:  the result [layers][experts].
  /// Errors:  those of comm::Group.
  Result<std::span<const float>> sum_over_ranks(comm::Group& group);
  /// The sums over ranks of the window's counts, exact. Errors:  those of comm::Group.
  Status count_over_ranks(comm::Group& group, std::span<std::uint64_t> total);

 private:
  ExpertLoad(const LoadShape& shape, memory::Buffer buffer, float decay);

  LoadShape shape_;
  memory::Buffer buffer_;
  float decay_ = 1;
  std::span<std::uint32_t> pass_, window_;
  std::span<float> sums_, totals_;
  std::span<std::byte> gathered_;  // [ranks][experts] of one layer, four bytes each
  std::size_t window_passes_ = 0, sum_passes_ = 0;
};

/// What make() asks of the ledger, before rounding to pages (memory::buffer_cost, metadata).
std::uint64_t load_bytes(const LoadShape& shape) noexcept;

}  // namespace lode::eplb
