#include "lode/cli/loaded_model.h"

#include <csignal>
#include <cstdio>

#include "lode/base/fmt.h"
#include "lode/cli/progress_view.h"
#include "lode/cli/text_file.h"
#include "lode/engine/load_watch.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

// The one load of the process: a signal handler can reach nothing else.
loader::Progress load_progress;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

void on_interrupt(int signal) {
  load_progress.cancel.store(true);
  std::signal(signal, SIG_DFL);  // whoever presses again does not want to wait
}

Result<LoadedModel> start(engine::Source source, engine::RunPlan plan, const ModelOptions& options,
                          const memory::HeldProbe& probe) {
  LoadedModel loaded;
  loaded.ledger = std::make_unique<memory::Ledger>(plan.budget.limit_bytes);
  loaded.plan = std::move(plan);
  ProgressView view(ProgressView::form_of(options.progress), loaded.plan.load, load_progress);
  LODE_TRY(engine::LoadWatch watch,
           engine::LoadWatch::start(probe, load_progress, [&view] { view.tick(); }));
  const auto begin = std::chrono::steady_clock::now();
  auto engine =
      engine::Engine::start(std::move(source), loaded.plan, *loaded.ledger, &load_progress);
  const auto passed = std::chrono::steady_clock::now() - begin;
  watch.stop();
  view.finish();
  if (!engine) return std::move(engine).error();
  if (load_progress.negative_scales.load()) {
    write_standard_error(
        "lode: warning: some block scales are negative, which no known producer writes; taken as "
        "they are\n");
  }
  loaded.engine = *std::move(engine);
  loaded.receipt = engine::make_receipt(loaded.plan, loaded.engine->source(), *loaded.ledger);
  loaded.receipt.load_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
  LODE_TRY(loaded.receipt.kernel, watch.finish(loaded.engine->source().index));
  return loaded;
}

}  // namespace

Result<LoadedModel> load_model(const ModelOptions& options, const engine::Settings& settings,
                               const BeforeLoad& before) {
  if (!options.receipt.empty()) LODE_TRY_STATUS(check_writable(options.receipt));
  LODE_TRY(const memory::HeldProbe probe, memory::HeldProbe::make());
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  LODE_TRY(engine::Source source, engine::open_source(options.folder));
  LODE_TRY(engine::RunPlan plan, engine::plan_run(source, settings, machine));
  if (!plan.budget.warning.empty())
    write_standard_error(fmt::format("lode: warning: {}\n", plan.budget.warning));
  LODE_TRY_STATUS(engine::check_fits(plan, source));
  LODE_TRY_STATUS(engine::open_tokenizer(source));
  if (before) LODE_TRY_STATUS(before(source, plan));
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  return start(std::move(source), std::move(plan), options, probe);
}

Status deliver_receipt(const ModelOptions& options, const engine::Receipt& receipt) {
  write_standard_error(fmt::format("\n{}", engine::as_text(receipt)));
  if (!options.receipt.empty()) {
    LODE_TRY_STATUS(
        write_text_file(options.receipt, json::dump(engine::as_json(receipt), 2) + "\n"));
  }
  if (receipt.as_planned()) return {};
  return Error{.code = Code::kBudgetViolated,
               .thing = "ledger of this run",
               .wanted = "what the plan said, byte for byte",
               .found = "another account",
               .hint = "a bug of lode: please report it with the JSON of --receipt"};
}

bool interrupted() noexcept { return load_progress.cancel.load(); }

}  // namespace lode::cli
