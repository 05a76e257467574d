#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lode/base/result.h"
#include "lode/cli/model_options.h"
#include "lode/cli/rank_runs.h"
#include "lode/engine/engine.h"
#include "lode/engine/prepare_receipt.h"
#include "lode/engine/receipt.h"
#include "lode/memory/ledger.h"
#include "lode/parallel/function_ref.h"

namespace lode::cli {

/// A model that a command has loaded, its account and its receipt so far.
struct LoadedModel {
  std::unique_ptr<memory::Ledger> ledger;  // outlives the engine
  engine::RunPlan plan;
  std::unique_ptr<engine::Engine> engine;
  engine::Receipt receipt;
  bool speaks = true;  // of several ranks the first one
};

/// Looks at what will be run before a weight is read: the tokenizer is there if the folder has one.
/// Errors: whatever makes the load a waste of time.
using BeforeLoad = std::function<Status(const engine::Source&, const engine::RunPlan&)>;

/// Opens, plans, refuses or loads, with progress on standard error; from here on Ctrl-C stops the
/// load cleanly, and is told by `interrupted()`; a second one ends the process. Of several ranks
/// each calls it, and one prints.
///
/// Errors: those of engine::open_source, plan_run, check_fits, `before`, Engine::start.
Result<LoadedModel> load_model(const ModelOptions& options, const engine::Settings& settings,
                               const RankContext& context, const BeforeLoad& before = nullptr);

/// The end of a run: balancing ends, then the rank that speaks tells what came of it all (`tell`),
/// prints what balancing did and the receipt on standard error, and writes both as JSON where the
/// options name files. Collective, but for what comes behind the end of balancing.
///
/// Errors: kIo, kNoSpace naming the file; kBudgetViolated where the ledger is not as planned; those
///         of `tell` and of comm::Group.
Status end_run(const ModelOptions& options, const LoadedModel& loaded,
               parallel::FunctionRef<Status()> tell);
Status end_run(const ModelOptions& options, const LoadedModel& loaded);

/// The end of a run that was interrupted: returns when every rank has come to it, so that none ends
/// the others before they have told what they did. Collective.
Error interrupted_run(const RankContext& context, std::string what);

/// Prints the receipt on standard error, and writes the JSON to `file`, unless that is empty.
/// Errors: kIo, kNoSpace naming the file; kBudgetViolated where the ledger is not as planned.
Status deliver_receipt(const std::string& file, const engine::PrepareReceipt& receipt);

/// From here on Ctrl-C is told by `interrupted()`, once; a second one ends the process.
void stop_on_interrupt();

/// Whether Ctrl-C was pressed since then.
bool interrupted() noexcept;

}  // namespace lode::cli
