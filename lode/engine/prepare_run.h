#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"
#include "lode/loader/engine_plan.h"
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
  std::unique_ptr<loader::EnginePlan> engine;  // for a GPU engine
  std::unique_ptr<prepared::Preparation> preparation;
  std::vector<memory::StageUse> stages;  // what its ledger will record, byte for byte

  std::uint64_t peak_bytes() const;
};

/// What is to be prepared, and where to.
struct PrepareRequest {
  std::filesystem::path out;
  loader::EngineChoice choice{};  // for whom, and which experts
  bool as_safetensors = false;    // an export for the engine instead of the prepared format
  prepared::Options options{};
};

/// Plans the preparation of `source` into `out`, which is looked at and nothing else. Of the
/// settings the budget and those of the load count. `source` outlives it.
///
/// Errors: kOverBudget naming need and have; those of plan_load, plan_engine and Preparation::open.
Result<PrepareRun> plan_prepare(const Source& source, const Settings& settings,
                                const memory::MachineMemory& machine,
                                const PrepareRequest& request);

/// What `plan_prepare` would find of a folder that is not there yet.
struct NewPreparation {
  PrepareRun run;  // without a `preparation`: it cannot be carried out
  std::uint64_t output_bytes = 0;
};

/// Looks at no OUT and at no budget: check_fits does that.
///
/// Errors: those of plan_load, plan_engine and prepared::plan_new_folder.
Result<NewPreparation> plan_new_prepare(const Source& source, const Settings& settings,
                                        const memory::MachineMemory& machine,
                                        const loader::EngineChoice& choice);

/// Errors: kOverBudget naming need, have and the `--memory` that fits.
Status check_fits(const PrepareRun& run);

/// The experts of rank `rank` of `ranks`, in equal consecutive parts, the first ones one larger
/// where they do not come out even. Empty, for all, of one rank.
/// Errors: kUsage naming the flags where there is no such rank, or more ranks than experts.
/// Source: weight_layouts 4.3, linear placement.
Result<std::vector<std::uint32_t>> experts_of_rank(std::uint32_t num_experts, std::uint32_t ranks,
                                                   std::uint32_t rank);

/// Carries it out; the ledger has the budget of the run.
/// Errors: those of Preparation::run.
Result<prepared::Report> run_prepare(const PrepareRun& run, memory::Ledger& ledger,
                                     loader::Progress* progress = nullptr);

}  // namespace lode::engine
