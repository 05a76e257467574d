#pragma once

#include <csignal>
#include <memory>

#include "lode/base/result.h"
#include "lode/cli/model_options.h"
#include "lode/engine/engine.h"
#include "lode/engine/receipt.h"
#include "lode/memory/ledger.h"

namespace lode::cli {

/// A model that a command has loaded, its account and its receipt so far.
struct LoadedModel {
  std::unique_ptr<memory::Ledger> ledger;  // outlives the engine
  engine::RunPlan plan;
  std::unique_ptr<engine::Engine> engine;
  engine::Receipt receipt;
};

/// Opens, plans, refuses or loads, with progress on standard error; from here on Ctrl-C stops the
/// load cleanly, and is told by `interrupted()`.
///
/// Errors: those of engine::open_source, plan_run, Engine::start.
Result<LoadedModel> load_model(const ModelOptions& options);

/// Prints the receipt on standard error, and writes the JSON where --receipt says.
/// Errors: kIo naming the file.
Status deliver_receipt(const ModelOptions& options, const engine::Receipt& receipt);

/// Whether Ctrl-C was pressed since load_model began.
bool interrupted() noexcept;

}  // namespace lode::cli
