#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "lode/loader/plan.h"
#include "lode/loader/weight_set.h"
#include "lode/memory/buffer.h"
#include "lode/memory/ledger.h"

namespace lode::loader {

/// Makes a WeightSet stage by stage: the slabs of a stage exist from its beginning on, zero and
/// untouched, and every view of them. What is made so far is freed if the builder ends early.
class WeightSetBuilder {
 public:
  explicit WeightSetBuilder(const LoadPlan& plan);

  /// Writable bytes of a stage's slabs; the bank is empty where the stage has none.
  struct Slabs {
    std::span<std::byte> dense;
    std::span<std::byte> bank;
  };

  /// Reserves and maps the slabs of the next stage.
  /// Errors: kOverBudget, kIo.
  Result<Slabs> make_slabs(memory::Ledger& ledger, const StagePlan& stage);

  /// Takes slabs that hold the next stage's bytes already: parts of a prepared file, mapped. `bank`
  /// is empty where the stage has none. They are as large as the stage says.
  void take_slabs(const StagePlan& stage, memory::Buffer dense, memory::Buffer bank);

  /// Seals every slab, but for banks of experts that are to be moved, and hands the weights over.
  /// Errors: kIo.
  Result<WeightSet> finish() &&;

 private:
  Result<std::span<std::byte>> make_slab(memory::Ledger& ledger, std::uint64_t bytes,
                                         const std::string& what);
  void keep_bank(const StagePlan& stage);
  void make_views(const StagePlan& stage, std::span<const std::byte> dense,
                  std::span<const std::byte> bank);

  WeightSet weights_;
  bool movable_experts_;
};

}  // namespace lode::loader
