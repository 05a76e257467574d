#include "lode/cli/loaded_model.h"

#include <malloc.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <new>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/progress_view.h"
#include "lode/cli/text_file.h"
#include "lode/engine/load_watch.h"
#include "lode/json/json.h"
#include "lode/memory/hard_limit.h"

namespace lode::cli {
namespace {

// The loads of the process, one a rank: a signal handler can reach nothing else.
std::array<loader::Progress, kMostRanks> load_progress;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

void on_interrupt(int signal) {
  for (loader::Progress& progress : load_progress) progress.cancel.store(true);
  std::signal(signal, SIG_DFL);  // whoever presses again does not want to wait
}

// What the account had come to says how far the load was.
std::string account_of(const memory::Ledger& ledger) {
  const std::vector<memory::StageUse> stages = ledger.stages();
  return fmt::format("stopped in stage \"{}\"; the ledger's peak was {} of {} bytes",
                     stages.empty() ? "scan" : stages.back().name, ledger.peak_bytes(),
                     ledger.limit_bytes());
}

Error with_account(Error error, const std::string& pressure, const memory::Ledger& ledger) {
  if (error.code == Code::kPressure) {
    error.wanted = "a machine with room for what was promised";
    error.found = pressure;
    error.where = account_of(ledger);
    error.hint = "everything was freed; end other programs or plan with a smaller --memory";
  }
  if (error.code == Code::kBudgetViolated) {
    error.where = account_of(ledger);
    error.hint = "a bug of lode: more was taken than was planned";
  }
  return error;
}

// Beside the plan there are the stacks of all threads, which count as mapped and not as touched,
// and what a mapping is larger than its buffer while it is being aligned.
Status limit_hard(const engine::RunPlan& plan) {
  constexpr std::uint64_t kStackBytes = 256 * kKiB;
  constexpr std::uint64_t kMarginBytes = 8 * kMiB;
  const loader::LoadPolicy& load = plan.load.policy;
  const std::uint64_t num_threads = std::uint64_t{plan.threads} + load.workers + load.readers;
  LODE_TRY(const std::uint64_t data_bytes, memory::data_bytes());
  return memory::set_hard_limit(data_bytes + plan.peak_bytes() + num_threads * kStackBytes +
                                kMarginBytes);
}

Result<std::unique_ptr<engine::Engine>> start_engine(engine::Source source,
                                                     const engine::RunPlan& plan,
                                                     memory::Ledger& ledger,
                                                     const RankContext& context) {
  try {
    return engine::Engine::start(std::move(source), plan, ledger,
                                 &load_progress[context.rank_here()], context.group);
  } catch (const std::bad_alloc&) {
    return Error{.code = memory::code_of_refused_memory(Code::kOther),
                 .thing = "memory of the program itself",
                 .found = "the system refused an allocation"};
  }
}

// Files that are mapped are the weights themselves, not sources that were left behind.
Result<engine::KernelFigures> kernel_figures(engine::LoadWatch& watch, const LoadedModel& loaded) {
  const engine::Source& source = loaded.engine->source();
  if (loaded.plan.maps_weights()) return watch.finish({});
  return watch.finish(source.prepared ? source.prepared->files : loaded.plan.load.sources);
}

// What presses one rank presses all of the process.
void press_all() {
  if (!load_progress[0].pressed.load()) return;
  for (loader::Progress& progress : load_progress) progress.pressed.store(true);
}

// Fills `loaded`, which has its plan and its ledger.
Status load(engine::Source source, const RankContext& context, LoadedModel& loaded) {
  const auto begin = std::chrono::steady_clock::now();
  LODE_TRY(loaded.engine, start_engine(std::move(source), loaded.plan, *loaded.ledger, context));
  const auto passed = std::chrono::steady_clock::now() - begin;
  loaded.receipt = engine::make_receipt(loaded.plan, loaded.engine->source(), *loaded.ledger);
  loaded.receipt.io = loaded.engine->reading();
  loaded.receipt.load_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
  if (context.group == nullptr) return {};
  const std::uint64_t read_bytes = load_progress[context.rank_here()].read_bytes.load();
  LODE_TRY(loaded.receipt.ranks,
           engine::gather_figures(*context.group,
                                  engine::figures_of(loaded.receipt, loaded.plan, read_bytes)));
  return {};
}

// The rank that watches over its process: the kernel's figures are of that, not of one of its
// ranks.
Status load_watched(engine::Source source, const RankContext& context, const ModelOptions& options,
                    const memory::HeldProbe& probe, LoadedModel& loaded) {
  using Form = ProgressView::Form;
  ProgressView view(loaded.speaks ? ProgressView::form_of(options.progress) : Form::kNone,
                    loaded.plan.load, load_progress[0]);
  const auto tick = [&view] {
    view.tick();
    press_all();
  };
  const std::uint64_t others = context.one_process ? loaded.plan.other_ranks_bytes : 0;
  LODE_TRY(engine::LoadWatch watch,
           engine::LoadWatch::start(probe, load_progress[0],
                                    {.on_tick = tick,
                                     .load_peak_bytes = loaded.plan.load_peak_bytes() + others,
                                     .read_pressure = [] { return memory::read_pressure(); }}));
  Status done = load(std::move(source), context, loaded);
  watch.stop();
  view.finish();
  if (!done) return with_account(std::move(done).error(), watch.pressure(), *loaded.ledger);
  malloc_trim(0);
  if (context.group != nullptr && context.one_process) return {};
  LODE_TRY(loaded.receipt.kernel, kernel_figures(watch, loaded));
  return {};
}

void warn_of_negative_scales(const RankContext& context) {
  if (!load_progress[context.rank_here()].negative_scales.load()) return;
  write_standard_error(
      "lode: warning: some block scales are negative, which no known producer writes; taken as "
      "they are\n");
}

Result<LoadedModel> start(engine::Source source, engine::RunPlan plan, const ModelOptions& options,
                          const RankContext& context, const memory::HeldProbe& probe) {
  LoadedModel loaded;
  loaded.speaks = context.speaks();
  // With a hard limit nothing beyond the plan is to be had, whatever the budget would allow.
  loaded.ledger = std::make_unique<memory::Ledger>(options.hard_limit ? plan.peak_bytes()
                                                                      : plan.budget.limit_bytes);
  loaded.plan = std::move(plan);
  const bool watches = context.rank_here() == 0;
  LODE_TRY_STATUS(watches ? load_watched(std::move(source), context, options, probe, loaded)
                          : load(std::move(source), context, loaded));
  warn_of_negative_scales(context);
  return loaded;
}

Status check_hard_limit(const ModelOptions& options, const RankContext& context) {
  if (!options.hard_limit || context.group == nullptr || !context.one_process) return {};
  return Error{.code = Code::kUsage,
               .thing = "--hard-limit",
               .wanted = "one rank, or ranks that are processes of their own (mpirun)",
               .found = "ranks that share this process"};
}

template <class Receipt>
Status check_as_planned(std::string ledger, const Receipt& receipt) {
  if (receipt.as_planned()) return {};
  return Error{.code = Code::kBudgetViolated,
               .thing = std::move(ledger),
               .wanted = "what the plan said, byte for byte",
               .found = "another account",
               .hint = "a bug of lode: please report it with the JSON of --receipt"};
}

template <class Receipt>
Status deliver(const std::string& file, std::string ledger, const Receipt& receipt) {
  write_standard_error(fmt::format("\n{}", engine::as_text(receipt)));
  if (!file.empty()) {
    LODE_TRY_STATUS(write_text_file(file, json::dump(engine::as_json(receipt), 2) + "\n"));
  }
  return check_as_planned(std::move(ledger), receipt);
}

// Nothing where there is no balancing.
Status deliver_balance(const ModelOptions& options,
                       const std::optional<engine::BalanceLog>& balance) {
  if (!balance) return {};
  write_standard_error(fmt::format("\n{}", engine::as_text(*balance)));
  if (options.balance_report.empty()) return {};
  return write_text_file(options.balance_report, json::dump(engine::as_json(*balance), 2) + "\n");
}

// Files that are written at the end are tried at the beginning.
Status check_reports(const ModelOptions& options) {
  if (!options.balance_report.empty() && options.balance_report == options.receipt) {
    return Error{.code = Code::kUsage,
                 .thing = "--balance-report",
                 .wanted = "another file than --receipt",
                 .found = options.receipt};
  }
  for (const std::string& file : {options.receipt, options.balance_report}) {
    if (!file.empty()) LODE_TRY_STATUS(check_writable(file));
  }
  return {};
}

}  // namespace

Result<LoadedModel> load_model(const ModelOptions& options, const engine::Settings& settings,
                               const RankContext& context, const BeforeLoad& before) {
  LODE_TRY_STATUS(check_hard_limit(options, context));
  const bool speaks = context.speaks();
  if (speaks) LODE_TRY_STATUS(check_reports(options));
  LODE_TRY(const memory::HeldProbe probe, memory::HeldProbe::make());
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  LODE_TRY(engine::Source source, engine::open_source(options.folder, settings.start.verification));
  LODE_TRY_STATUS(engine::open_tokenizer(source));
  malloc_trim(0);  // what reading the tokenizer took for a while
  LODE_TRY(engine::RunPlan plan, engine::plan_run(source, settings, machine));
  if (speaks && engine::is_restored(plan)) {
    write_standard_error(fmt::format(
        "lode: note: the experts lie as {}'s kernels read them and are restored to "
        "Lode's own form first: slow; `lode prepare DIR OUT` makes what starts at once\n",
        source.prepared->manifest.target));
  }
  if (speaks && !plan.budget.warning.empty())
    write_standard_error(fmt::format("lode: warning: {}\n", plan.budget.warning));
  LODE_TRY_STATUS(engine::check_fits(plan, source));
  if (settings.context_auto) {
    write_standard_error(
        fmt::format("lode: --ctx auto: {} tokens of context\n", plan.context_tokens));
  }
  if (before) LODE_TRY_STATUS(before(source, plan));
  if (options.hard_limit) LODE_TRY_STATUS(limit_hard(plan));
  if (context.rank_here() == 0) stop_on_interrupt();
  const memory::HeldProbe watched = plan.maps_weights() ? probe.with_mapped_files() : probe;
  return start(std::move(source), std::move(plan), options, context, watched);
}

Status end_run(const ModelOptions& options, const LoadedModel& loaded,
               parallel::FunctionRef<Status()> tell) {
  std::optional<engine::BalanceLog> balance;
  if (engine::Balancer* const balancer = loaded.engine->balancer(); balancer != nullptr) {
    LODE_TRY(balance, balancer->finish());
  }
  const std::string ledger = "ledger of this run";
  if (!loaded.speaks) return check_as_planned(ledger, loaded.receipt);
  LODE_TRY_STATUS(tell());
  LODE_TRY_STATUS(deliver_balance(options, balance));
  return deliver(options.receipt, ledger, loaded.receipt);
}

Status end_run(const ModelOptions& options, const LoadedModel& loaded) {
  return end_run(options, loaded, [] { return Status{}; });
}

Error interrupted_run(const RankContext& context, std::string what) {
  if (context.group != nullptr) {
    const Status others = context.group->barrier();
    if (!others) return others.error();
  }
  return {.code = Code::kInterrupted, .thing = std::move(what), .found = "interrupted"};
}

Status deliver_receipt(const std::string& file, const engine::PrepareReceipt& receipt) {
  return deliver(file, "ledger of this preparation", receipt);
}

void stop_on_interrupt() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

bool interrupted() noexcept { return load_progress[0].cancel.load(); }

}  // namespace lode::cli
