#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "lode/loader/plan.h"
#include "lode/loader/reach.h"
#include "lode/loader/slot_packer.h"

namespace lode::loader {

/// What one stage reads and does, load by load, made as it is asked for: always the same for the
/// same plan and binding, in the order of destinations but for windows, in which small pieces come
/// last and in the order of the files.
/// Memory: the operations of one window. Plan and binding must outlive it.
class OperationStream {
 public:
  /// What is touched but not finished stays near this: small pieces of a window wait for its end.
  static constexpr std::uint64_t kWindowBytes = 16 * kMiB;

  /// Where a stage begins that was done in part: what ends before is left out.
  struct Start {
    Slab slab = Slab::kDense;
    std::uint64_t offset_bytes = 0;
  };
  struct Options {
    std::uint64_t window_bytes = kWindowBytes;
    Start start;
  };

  OperationStream(const LoadPlan& plan, const Binding& binding, std::size_t stage_idx)
      : OperationStream(plan, binding, stage_idx, Options{}) {}
  OperationStream(const LoadPlan& plan, const Binding& binding, std::size_t stage_idx,
                  const Options& options);
  OperationStream(const OperationStream&) = delete;
  OperationStream& operator=(const OperationStream&) = delete;

  /// The next load, or nothing at the end.
  std::optional<SlotLoad> next();

 private:
  void take(Group group);
  void end_slab();
  void close_window(std::uint64_t end_bytes);
  std::uint64_t slab_bytes(Slab slab) const;
  bool is_due(const Reach& next) const;

  const LoadPlan& plan_;
  const Binding& binding_;
  const StagePlan& stage_;
  Options options_;
  std::size_t next_item_ = 0;
  std::vector<Group> groups_;  // of the window that is open
  std::uint64_t groups_bytes_ = 0;
  Reach last_;  // of groups_
  Window window_;
  std::deque<SlotLoad> ready_;
  SlotPacker packer_;
};

/// All loads of a stage: for tests and for people; a load streams them.
std::vector<SlotLoad> stage_operations(const LoadPlan& plan, const Binding& binding,
                                       std::size_t stage_idx);

}  // namespace lode::loader
