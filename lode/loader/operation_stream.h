#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "lode/loader/plan.h"
#include "lode/loader/slot_packer.h"

namespace lode::loader {

/// What one stage reads and does, load by load, made as it is asked for: always the same for the
/// same plan and binding, in the order of destinations but for windows of kWindowBytes, in which
/// small pieces come last and in the order of the files.
/// Memory: the operations of one window. Plan and binding must outlive it.
class OperationStream {
 public:
  /// What is touched but not finished stays below this: small pieces of a window wait for its end.
  static constexpr std::uint64_t kWindowBytes = 16 * kMiB;

  OperationStream(const LoadPlan& plan, const Binding& binding, std::size_t stage_idx)
      : plan_(plan),
        binding_(binding),
        stage_(plan.stages[stage_idx]),
        packer_(plan.policy.slot_bytes, ready_) {}
  OperationStream(const OperationStream&) = delete;
  OperationStream& operator=(const OperationStream&) = delete;

  /// The next load, or nothing at the end.
  std::optional<SlotLoad> next();

 private:
  void take(Group group);
  void close_window();

  const LoadPlan& plan_;
  const Binding& binding_;
  const StagePlan& stage_;
  std::size_t next_item_ = 0;
  std::vector<Group> window_;
  std::uint64_t window_bytes_ = 0;
  std::deque<SlotLoad> ready_;
  SlotPacker packer_;
};

/// All loads of a stage: for tests and for people; a load streams them.
std::vector<SlotLoad> stage_operations(const LoadPlan& plan, const Binding& binding,
                                       std::size_t stage_idx);

}  // namespace lode::loader
