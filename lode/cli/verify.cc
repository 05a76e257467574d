#include "lode/prepared/verify.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/program.h"
#include "lode/cli/progress_view.h"
#include "lode/cli/text_file.h"
#include "lode/engine/source.h"
#include "lode/json/json.h"
#include "lode/loader/execute.h"
#include "lode/loader/scan.h"
#include "lode/parallel/ticker.h"
#include "lode/prepared/compare.h"
#include "lode/prepared/export_compare.h"
#include "lode/prepared/export_folder.h"

namespace lode::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Buffers and tables are small whatever the checkpoint.
constexpr std::uint64_t kBudgetBytes = 2 * kGiB;

struct VerifyOptions {
  std::string folder;
  std::string against;  // the source of a prepared checkpoint, or empty
  std::uint32_t threads = 2;
  std::string io = "auto";
  std::string progress;
  bool json = false;
};

// What was found, whichever kind of folder it is.
struct Verdict {
  std::string kind;  // "checkpoint", "prepared", "export"
  std::vector<Error> faults;
  std::vector<std::string> notes;
  std::vector<json::Member> counts;
  std::uint64_t num_bytes = 0;
  double seconds = 0;
};

// Shows how far it is, and passes Ctrl-C on.
class Watch {
  struct Key {};  // only `start` makes one

 public:
  Watch(Key, ProgressView::Form form, loader::Progress& progress)
      : form_(form), progress_(progress) {}
  /// Errors: kOther where the system gives no thread.
  static Result<std::unique_ptr<Watch>> start(ProgressView::Form form, loader::Progress& progress) {
    auto watch = std::make_unique<Watch>(Key{}, form, progress);
    LODE_TRY(watch->ticker_, parallel::Ticker::start(std::chrono::milliseconds(100),
                                                     [self = watch.get()] { self->tick(); }));
    return watch;
  }
  ~Watch() {
    ticker_.reset();
    if (shown_) write_standard_error("\r\x1b[K");
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void tick() {
    if (interrupted()) progress_.cancel.store(true);
    const std::uint64_t finished = progress_.finished_bytes.load();
    const std::uint64_t total = progress_.total_bytes.load();
    if (form_ == ProgressView::Form::kNone || total == 0) return;
    if (form_ == ProgressView::Form::kJson) {
      write_standard_error(fmt::format(
          "{}\n",
          json::dump(json::object(
              {{"phase", "verify"}, {"finished_bytes", finished}, {"total_bytes", total}}))));
      return;
    }
    shown_ = true;
    write_standard_error(fmt::format("\rverifying {:>3}%  {} of {}   ", finished * 100 / total,
                                     human_bytes(finished), human_bytes(total)));
  }

  ProgressView::Form form_;
  loader::Progress& progress_;
  bool shown_ = false;
  std::optional<parallel::Ticker> ticker_;  // last: ends first
};

loader::LoadPolicy policy_of(const VerifyOptions& options) {
  loader::LoadPolicy policy;
  policy.workers = options.threads;
  policy.readers = std::max(options.threads, policy.readers);
  return policy;
}

// Makes all of it again from the source; the first difference is a fault.
Status compare(const VerifyOptions& options, Verdict& verdict, loader::Progress& progress) {
  LODE_TRY(const engine::Source source, engine::open_source(options.against));
  LODE_TRY_STATUS(engine::check_not_prepared(source));
  LODE_TRY(const prepared::Checkpoint checkpoint,
           prepared::open(options.folder, prepared::Verification::kNone));
  loader::LoadPolicy policy = policy_of(options);
  LODE_TRY(policy.io, io::parse_io_kind(options.io));
  if (checkpoint.manifest.dense == loader::name(loader::DenseFormat::kInt8))
    policy.dense = loader::DenseFormat::kInt8;
  LODE_TRY(const loader::LoadPlan plan,
           loader::plan_load(source.binding, source.spec, source.index, policy));
  memory::Ledger ledger(kBudgetBytes);
  Status same = prepared::compare_with(checkpoint, plan, source.binding, ledger, &progress);
  if (same || same.error().code != Code::kCheckFailed) return same;
  verdict.faults.push_back(std::move(same).error());
  return {};
}

// Whole files may still be of another model than config.json says.
Status check_model(const VerifyOptions& options, Verdict& verdict) {
  auto source = engine::open_source(options.folder);
  if (source) return {};
  const Code code = source.error().code;
  if (code == Code::kUnsupported) {
    verdict.notes.push_back(to_string(source.error()));
    return {};
  }
  if (code != Code::kInvalidSource) return std::move(source).error();
  verdict.faults.push_back(std::move(source).error());
  return {};
}

Result<Verdict> verify_prepared(const VerifyOptions& options, loader::Progress& progress) {
  memory::Ledger ledger(kBudgetBytes);
  LODE_TRY(prepared::VerifyReport report,
           prepared::verify(options.folder, options.threads, ledger, &progress));
  Verdict verdict;
  verdict.kind = "prepared";
  verdict.faults = std::move(report.faults);
  verdict.num_bytes = report.num_bytes;
  verdict.counts = {{"companions", report.num_companions},
                    {"files", report.num_files},
                    {"chunks", report.num_chunks}};
  if (verdict.faults.empty()) LODE_TRY_STATUS(check_model(options, verdict));
  if (options.against.empty()) return verdict;
  if (verdict.faults.empty()) {
    LODE_TRY_STATUS(compare(options, verdict, progress));
  } else {
    verdict.notes.emplace_back("not compared with its source: it has faults of its own");
  }
  return verdict;
}

void add_report(Verdict& verdict, const loader::ScanReport& report) {
  for (const loader::ScanFault& fault : report.faults) {
    verdict.faults.push_back({.code = Code::kInvalidSource,
                              .thing = fault.tensor,
                              .wanted = "numbers that a model can use",
                              .found = fault.what,
                              .where = fault.where});
  }
  verdict.num_bytes = report.num_bytes;
  verdict.counts = {{"tensors", report.num_tensors},
                    {"block_scales", report.num_scales},
                    {"zero_scales", report.zero_scales},
                    {"denormal_scales", report.denormal_scales},
                    {"negative_scales", report.negative_scales},
                    {"unequal_pairs", report.unequal_pairs},
                    {"implausible_scales", report.implausible_scales},
                    {"denormal_matrix_scales", report.denormal_matrix_scales}};
  if (report.unequal_pairs > 0) {
    verdict.notes.push_back(fmt::format(
        "gate and up have different scales of the matrix in {}, the first of {}; lode keeps both, "
        "other engines take one for both",
        count_of(report.unequal_pairs, "pair"), report.first_unequal_pair));
  }
  if (report.implausible_scales > 0) {
    verdict.notes.push_back(fmt::format(
        "{} of a matrix would make weights of thousands, the first of {}: as if a divisor was read "
        "as a multiplier, or the other way round",
        count_of(report.implausible_scales, "scale"), report.first_implausible_scale));
  }
  if (report.denormal_matrix_scales > 0) {
    verdict.notes.push_back(fmt::format(
        "denormal: {} of a matrix, which makes weights of next to nothing, the first of {}",
        count_of(report.denormal_matrix_scales, "scale"), report.first_denormal_matrix_scale));
  }
}

// Made again from its source: it has no sums of its own.
Result<Verdict> verify_export(const VerifyOptions& options, loader::Progress& progress) {
  if (options.against.empty()) return prepared::check_not_export(options.folder).error();
  LODE_TRY(const prepared::ExportDescription said, prepared::read_export(options.folder));
  LODE_TRY(const engine::Source source, engine::open_source(options.against));
  LODE_TRY_STATUS(engine::check_not_prepared(source));
  loader::LoadPolicy policy = policy_of(options);
  LODE_TRY(policy.io, io::parse_io_kind(options.io));
  LODE_TRY(const loader::LoadPlan plan,
           loader::plan_load(source.binding, source.spec, source.index, policy));
  Verdict verdict;
  verdict.kind = "export";
  LODE_TRY(std::string other, prepared::tell_other_source(said, source.index));
  auto engine = loader::plan_engine(source.binding, said.choice, policy.workers);
  if (!engine) {
    Error error = std::move(engine).error();
    if (!other.empty()) error.hint = std::move(other);
    return error;
  }
  if (!other.empty()) verdict.notes.push_back(std::move(other));
  memory::Ledger ledger(kBudgetBytes);
  auto compared = prepared::compare_export(options.folder,
                                           {.folder = source.folder,
                                            .index = source.index,
                                            .binding = source.binding,
                                            .plan = plan,
                                            .family = source.spec.family,
                                            .engine = &*engine,
                                            .choice = said.choice},
                                           ledger, &progress);
  if (compared) {
    verdict.num_bytes = *compared;
  } else if (compared.error().code == Code::kCheckFailed) {
    verdict.faults.push_back(std::move(compared).error());
  } else {
    return std::move(compared).error();
  }
  return verdict;
}

Result<Verdict> verify_source(const VerifyOptions& options, loader::Progress& progress) {
  if (!options.against.empty()) {
    return Error{.code = Code::kUsage,
                 .thing = "--against",
                 .wanted = "a folder that lode prepare made, to compare with its source",
                 .found = options.folder};
  }
  Verdict verdict;
  verdict.kind = "checkpoint";
  auto source = engine::open_source(options.folder);
  if (!source && source.error().code == Code::kInvalidSource) {
    verdict.faults.push_back(std::move(source).error());
    return verdict;
  }
  LODE_TRY_STATUS(source ? Status() : Status(source.error()));
  loader::LoadPolicy policy = policy_of(options);
  LODE_TRY(policy.io, io::parse_io_kind(options.io));
  LODE_TRY(const loader::LoadPlan plan,
           loader::plan_load(source->binding, source->spec, source->index, policy));
  LODE_TRY(const std::unique_ptr<io::ReadEngine> engine, loader::make_engine(plan));
  memory::Ledger ledger(kBudgetBytes);
  LODE_TRY(const loader::ScanReport report,
           loader::scan(source->binding, source->index, *engine, ledger, &progress));
  add_report(verdict, report);
  return verdict;
}

double bytes_per_second(const Verdict& verdict) {
  return static_cast<double>(verdict.num_bytes) / std::max(verdict.seconds, 1e-6);
}

json::Value as_json(const Verdict& verdict, const std::string& folder) {
  json::Array faults;
  for (const Error& fault : verdict.faults) {
    faults.push_back(json::object({{"thing", fault.thing},
                                   {"wanted", fault.wanted},
                                   {"found", fault.found},
                                   {"where", fault.where},
                                   {"hint", fault.hint}}));
  }
  json::Array notes;
  for (const std::string& note : verdict.notes) notes.emplace_back(note);
  return json::object({{"path", folder},
                       {"kind", verdict.kind},
                       {"passed", verdict.faults.empty()},
                       {"faults", std::move(faults)},
                       {"notes", std::move(notes)},
                       {"counts", json::Value(json::Object(verdict.counts))},
                       {"bytes", verdict.num_bytes},
                       {"seconds", verdict.seconds},
                       {"bytes_per_second", bytes_per_second(verdict)}});
}

void print_text(const Verdict& verdict) {
  for (const Error& fault : verdict.faults) fmt::print("fault     {}\n", to_string(fault));
  for (const std::string& note : verdict.notes) fmt::print("note      {}\n", note);
  for (const json::Member& count : verdict.counts) {
    fmt::print("{:<15} {}\n", count.first, json::dump(count.second));
  }
  fmt::print("looked at       {} in {:.2f} s ({}/s)\n", human_bytes(verdict.num_bytes),
             verdict.seconds, human_bytes(static_cast<std::uint64_t>(bytes_per_second(verdict))));
  fmt::print("{}\n",
             verdict.faults.empty() ? "no fault" : count_of(verdict.faults.size(), "fault"));
}

// One advice: where a fault has brought its own, that is it.
std::string advice_of(const Verdict& verdict) {
  const bool advised =
      std::ranges::any_of(verdict.faults, [](const Error& fault) { return !fault.hint.empty(); });
  if (advised) return {};
  if (verdict.kind == "export") return "export the checkpoint again, with --force";
  return verdict.kind == "prepared" ? "prepare the checkpoint again" : "download the files again";
}

Error stopped(const VerifyOptions& options, const loader::Progress& progress) {
  const std::uint64_t total = progress.total_bytes.load();
  return {.code = Code::kInterrupted,
          .thing = "verifying " + options.folder,
          .found = fmt::format("stopped after {} of {}; nothing is said of the rest",
                               human_bytes(std::min(progress.finished_bytes.load(), total)),
                               human_bytes(total))};
}

Status verify(const VerifyOptions& options) {
  LODE_TRY_STATUS(engine::check_folder(options.folder));
  loader::Progress progress;
  stop_on_interrupt();
  const auto begin = Clock::now();
  LODE_TRY(auto watch, Watch::start(ProgressView::form_of(options.progress), progress));
  auto verdict = prepared::is_prepared(options.folder) ? verify_prepared(options, progress)
                 : prepared::is_export(options.folder) ? verify_export(options, progress)
                                                       : verify_source(options, progress);
  watch.reset();
  if (!verdict) {
    if (verdict.error().code != Code::kInterrupted) return std::move(verdict).error();
    return stopped(options, progress);
  }
  verdict->seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (options.json) {
    fmt::print("{}\n", json::dump(as_json(*verdict, options.folder), 2));
  } else {
    print_text(*verdict);
  }
  if (verdict->faults.empty()) return {};
  return Error{.code = Code::kCheckFailed,
               .thing = options.folder,
               .wanted = "no fault",
               .found = count_of(verdict->faults.size(), "fault"),
               .hint = advice_of(*verdict)};
}

}  // namespace

void add_verify(Program& program) {
  CLI::App* const command = add_command(
      program, "verify",
      "Looks at every byte: of a prepared checkpoint all sums, of a checkpoint all numbers. Names "
      "each fault; exit status 12 where there is one",
      "  lode verify OUT\n  lode verify OUT --against DIR\n  lode verify DIR --json\n");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("DIR", options->folder, "Prepared checkpoint, export, or Hugging Face folder")
      ->required();
  command->add_option(
      "--against", options->against,
      "Make a prepared checkpoint, or an export, again from this folder and compare");
  command->add_option("-t,--threads", options->threads, "Threads that read and reckon")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--io", options->io, "How a Hugging Face folder is read; see `run`")
      ->check(CLI::IsMember({"auto", "uring", "threads", "buffered"}))
      ->capture_default_str();
  add_progress_option(command, options->progress);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback(
      [&program, options] { program.chosen = [options] { return verify(*options); }; });
}

}  // namespace lode::cli
