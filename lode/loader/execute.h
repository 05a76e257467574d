#pragma once

#include <memory>

#include "lode/io/read_engine.h"
#include "lode/loader/plan.h"
#include "lode/loader/progress.h"
#include "lode/loader/weight_set.h"
#include "lode/memory/ledger.h"

namespace lode::loader {

/// The engine that reads the files of a plan.
/// Errors: kSourceChanged where a file is no longer the one that was planned for; kIo.
Result<std::unique_ptr<io::ReadEngine>> make_engine(const LoadPlan& plan);

/// Carries out a plan: every byte goes from the disk through one slot of the ring to its final
/// place, and every slab is sealed at the end. The ledger's stages are then those that
/// `plan.expected_stages` says. `progress` may be null.
///
/// Memory:  the plan's: slabs, ring, stacks; no tensor exists beside its prepared form. On an error
///          nothing stays held.
/// Errors:  kOverBudget, before anything is read where the plan does not fit; kInvalidSource naming
///          role, layer, expert and place of a bad scale; kSourceChanged, kIo naming the file;
///          kInterrupted, kPressure where `progress` says so.
Result<WeightSet> execute(const LoadPlan& plan, const Binding& binding, memory::Ledger& ledger,
                          io::ReadEngine& engine, Progress* progress = nullptr);

}  // namespace lode::loader
