#pragma once

#include <atomic>
#include <cstdint>

#include "lode/loader/weight_set_builder.h"

namespace lode::loader {

/// A stage whose loads are under way: where they go, and what is left of it. Loads are added by one
/// thread and finished by any.
class StageRun {
 public:
  StageRun(const StagePlan& plan, const WeightSetBuilder::Slabs& slabs)
      : plan_(plan), slabs_(slabs), padding_bytes_(plan.mapped_bytes) {}

  const StagePlan& plan() const noexcept { return plan_; }
  const WeightSetBuilder::Slabs& slabs() const noexcept { return slabs_; }

  void add(const SlotLoad& load) noexcept {
    for (const Operation& operation : load.operations) padding_bytes_ -= operation.finished_bytes;
    left_.fetch_add(1, std::memory_order_relaxed);
  }

  /// One load is done, or, once, that there will be no more. With the last of them padding is final
  /// too: its bytes, else 0.
  std::uint64_t finish_one() noexcept {
    return left_.fetch_sub(1, std::memory_order_acq_rel) == 1 ? padding_bytes_ : 0;
  }

 private:
  const StagePlan& plan_;
  WeightSetBuilder::Slabs slabs_;
  std::uint64_t padding_bytes_;          // of records and pages
  std::atomic<std::uint64_t> left_ = 1;  // whoever adds counts as one
};

}  // namespace lode::loader
