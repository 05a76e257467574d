#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/model_options.h"
#include "lode/cli/program.h"
#include "lode/cli/progress_view.h"
#include "lode/cli/target_options.h"
#include "lode/cli/text_file.h"
#include "lode/engine/prepare_receipt.h"
#include "lode/engine/prepare_run.h"
#include "lode/memory/held_probe.h"
#include "lode/parallel/ticker.h"

namespace lode::cli {
namespace {

struct PrepareOptions {
  std::string folder;
  std::string out;
  TargetOptions target;
  std::string export_as;
  std::string dense = "as-stored";
  std::string io = "auto";
  std::optional<std::string> memory;
  std::uint32_t load_workers = 2;
  bool consume = false;
  bool force = false;
  bool strict = false;
  std::string receipt;
  std::string progress;
};

Result<engine::Settings> settings_of(const PrepareOptions& options) {
  engine::Settings settings;
  LODE_TRY(settings.memory_bytes, memory_of(options.memory));
  settings.load.workers = options.load_workers;
  LODE_TRY(settings.load.io, io::parse_io_kind(options.io));
  LODE_TRY(settings.scratch, scratch_of(options.target));
  if (options.dense == "int8") settings.load.dense = loader::DenseFormat::kInt8;
  return settings;
}

// An export has no other readers than GPU engines, and what it does not do it does not pass over.
Status check_export(const PrepareOptions& options) {
  if (options.export_as.empty()) return {};
  const char* const other = options.target.is_cpu()   ? "--target cpu"
                            : options.dense == "int8" ? "--dense int8"
                            : options.consume         ? "--consume"
                                                      : nullptr;
  if (other == nullptr) return {};
  return Error{.code = Code::kUsage,
               .thing = "--export",
               .wanted = "a target of a GPU engine, matrices as stored, the source kept",
               .found = other};
}

// What the kernel sees while it runs, and the line of progress; passes Ctrl-C on.
class Watch {
 public:
  Watch(const memory::HeldProbe& probe, ProgressView& view, loader::Progress& progress)
      : probe_(probe), view_(view), progress_(progress) {}

  /// Errors: kOther where the system gives no thread.
  Status start() {
    constexpr std::chrono::milliseconds kPeriod{10};
    LODE_TRY(parallel::Ticker ticker, parallel::Ticker::start(kPeriod, [this] { sample(); }));
    ticker_.emplace(std::move(ticker));
    return {};
  }
  void stop() {
    ticker_.reset();
    view_.finish();
  }
  /// At least one sample is taken, at the end.
  void put_into(engine::PrepareReceipt& receipt) {
    sample_held();
    receipt.num_samples = num_samples_;
    receipt.peak_held_bytes = peak_held_bytes_;
  }

 private:
  void sample() {
    if (interrupted()) progress_.cancel.store(true);
    sample_held();
    view_.tick();
  }
  void sample_held() {
    const auto held = probe_.held_bytes();
    if (!held) return;
    ++num_samples_;
    peak_held_bytes_ = std::max(peak_held_bytes_.value_or(0), *held);
  }

  const memory::HeldProbe& probe_;
  ProgressView& view_;
  loader::Progress& progress_;
  std::uint64_t num_samples_ = 0;
  std::optional<std::uint64_t> peak_held_bytes_;
  std::optional<parallel::Ticker> ticker_;  // last: it calls `sample`
};

/// Errors: those of resident_bytes.
Result<std::uint64_t> cached_bytes(const engine::Source& source) {
  std::uint64_t bytes = 0;
  for (const checkpoint::Shard& shard : source.index.shards()) {
    LODE_TRY(const std::uint64_t resident, memory::resident_bytes(shard.path));
    bytes += resident;
  }
  return bytes;
}

// Whether the target read one scale for both halves of some expert, and so rounded one of them.
bool rounded_a_half(const prepared::Report& report) {
  return std::ranges::any_of(report.losses, [](const loader::LayerLosses& layer) {
    return layer.counts.of(targets::Loss::kRoundedScales) > 0 ||
           layer.counts.of(targets::Loss::kRoundedNumbers) > 0;
  });
}

void say_done(const PrepareOptions& options, const prepared::Report& report) {
  write_standard_error(fmt::format(
      "prepared {}: {} ({} bytes), {} of them written now{}\n", options.out,
      human_bytes(report.output_bytes), report.output_bytes, human_bytes(report.written_bytes),
      report.freed_bytes == 0
          ? ""
          : fmt::format("; {} of the source given back", human_bytes(report.freed_bytes))));
  if (const std::string losses = engine::losses_text(report.losses); !losses.empty()) {
    write_standard_error(
        "note: the engine's layout does not hold all numbers; its own bytes were "
        "made. " +
        losses);
  }
  if (report.implausible_scales > 0) {
    write_standard_error(fmt::format(
        "note: {} of a matrix would make weights of thousands: as if a divisor was read as a "
        "multiplier, or the other way round\n",
        count_of(report.implausible_scales, "scale")));
  }
  if (report.unequal_pairs == 0) return;
  write_standard_error(fmt::format(
      "note: gate and up of {} have different scales of the matrix; {}\n",
      count_of(report.unequal_pairs, "expert"),
      rounded_a_half(report)
          ? fmt::format("the kernels of {} read one for both, so the half with the smaller one was "
                        "rounded to the larger",
                        options.target.target)
          : fmt::format("target {} rounded neither half for that", options.target.target)));
}

Status prepare(const PrepareOptions& options) {
  LODE_TRY_STATUS(check_export(options));
  if (!options.receipt.empty()) LODE_TRY_STATUS(check_writable(options.receipt));
  LODE_TRY(const memory::HeldProbe probe, memory::HeldProbe::make());
  LODE_TRY(const engine::Settings settings, settings_of(options));
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  LODE_TRY(const engine::Source source, engine::open_source_to_prepare(options.folder));
  LODE_TRY(const loader::EngineChoice choice,
           choice_of(options.target, source.spec.router.num_experts));
  LODE_TRY(const engine::PrepareRun run,
           engine::plan_prepare(source, settings, machine,
                                {.out = options.out,
                                 .choice = choice,
                                 .as_safetensors = !options.export_as.empty(),
                                 .options = {.consume = options.consume,
                                             .force = options.force,
                                             .strict = options.strict}}));
  const bool looks_again = options.strict && !options.target.is_cpu();
  if (run.preparation->is_finished() && !looks_again) {
    write_standard_error(fmt::format(
        "{} is prepared already, from this checkpoint and with these "
        "settings: nothing to do{}\n",
        options.out, options.receipt.empty() ? "" : ", and no receipt of it is written"));
    return {};
  }
  if (run.preparation->done_bytes() > 0) {
    write_standard_error(fmt::format("going on after {} of {}\n",
                                     human_bytes(run.preparation->done_bytes()),
                                     human_bytes(run.preparation->output_bytes())));
  }
  stop_on_interrupt();
  loader::Progress progress;
  memory::Ledger ledger(run.budget.limit_bytes);
  ProgressView view(ProgressView::form_of(options.progress), *run.load, progress, "preparing",
                    run.preparation->done_bytes());
  Watch watch(probe, view, progress);
  LODE_TRY_STATUS(watch.start());
  const auto begin = std::chrono::steady_clock::now();
  const auto report = engine::run_prepare(run, ledger, &progress);
  const auto passed = std::chrono::steady_clock::now() - begin;
  watch.stop();
  if (!report) return report.error();
  engine::PrepareReceipt receipt = engine::make_receipt(run, source, *report, ledger);
  watch.put_into(receipt);
  receipt.run_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
  LODE_TRY(receipt.held_bytes, probe.exact_held_bytes());
  // Where the kernel does not say it of another user's files, neither do we.
  if (const auto cached = cached_bytes(source)) receipt.source_cache_bytes = *cached;
  say_done(options, *report);
  return deliver_receipt(options.receipt, receipt);
}

void add_options(CLI::App* command, const std::shared_ptr<PrepareOptions>& options) {
  command->add_option("DIR", options->folder, "Hugging Face folder of the model")->required();
  command->add_option("OUT", options->out, "Folder to fill; one that was begun is gone on with")
      ->required();
  add_target_options(command, options->target);
  command
      ->add_option(
          "--export", options->export_as,
          "Write safetensors, named and shaped as the engine holds them, instead of Lode's "
          "own format; everything but the experts as it is")
      ->check(CLI::IsMember({"safetensors"}));
  command
      ->add_option("--dense", options->dense,
                   "Matrices outside the experts: as-stored, or int8 made now")
      ->check(CLI::IsMember({"as-stored", "int8"}))
      ->capture_default_str();
  command->add_option("--memory", options->memory,
                      "Budget for everything, such as 200MiB; the model's size does not matter");
  add_io_option(command, options->io);
  add_load_threads_option(command, options->load_workers);
  command->add_flag(
      "--consume", options->consume,
      "Give the source's disk blocks back as they are done with, for disks that hold one copy: at "
      "most the larger of source and result, and one layer, is used at a time. The source is "
      "gone then; there is no way back");
  command->add_flag(
      "--strict", options->strict,
      "Refuse a target whose layout would lose some of the numbers, naming the first tensor, "
      "instead of counting them in the receipt; exit status 12");
  command->add_flag("--force", options->force,
                    "Begin again, and drop what an earlier preparation left in OUT");
  add_receipt_option(command, options->receipt);
  add_progress_option(command, options->progress);
}

}  // namespace

void add_prepare(Program& program) {
  CLI::App* const command = add_command(
      program, "prepare",
      "Write a checkpoint as a load would have it in memory, to start from with no work; stopped "
      "whenever and however, the same command goes on",
      "  lode prepare DIR OUT\n  lode prepare DIR OUT --dense int8 --memory 200MiB\n"
      "  lode prepare DIR OUT --consume   # a disk that holds only one copy\n"
      "  lode prepare DIR OUT --target marlin\n"
      "  lode prepare DIR OUT --target flashinfer-trtllm --ranks 4 --rank 0 --export safetensors\n"
      "  lode run OUT -p 'Hello'\n");
  const auto options = std::make_shared<PrepareOptions>();
  add_options(command, options);
  command->callback(
      [&program, options] { program.chosen = [options] { return prepare(*options); }; });
}

}  // namespace lode::cli
