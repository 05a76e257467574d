#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"
#include "lode/loader/progress.h"
#include "lode/memory/budget.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/prepare.h"

namespace lode::engine {

/// One `lode prepare`: what it will hold against a budget, and the folder it has looked at.
struct PrepareRun {
  memory::Budget budget;
  std::uint64_t metadata_bytes = 0;  // index and binding, and the program itself
  std::unique_ptr<loader::LoadPlan> load;
  std::unique_ptr<prepared::Preparation> preparation;
  std::vector<memory::StageUse> stages;  // what its ledger will record, byte for byte

  std::uint64_t peak_bytes() const;
};

/// Plans the preparation of `source` into `out`, which is looked at and nothing else. Of the
/// settings the budget and those of the load count. `source` outlives it.
///
/// Errors: kOverBudget naming need and have; those of plan_load and Preparation::open.
Result<PrepareRun> plan_prepare(const Source& source, const Settings& settings,
                                const memory::MachineMemory& machine,
                                const std::filesystem::path& out, const prepared::Options& options);

/// Carries it out; the ledger has the budget of the run.
/// Errors: those of Preparation::run.
Result<prepared::Report> run_prepare(const PrepareRun& run, memory::Ledger& ledger,
                                     loader::Progress* progress = nullptr);

}  // namespace lode::engine
