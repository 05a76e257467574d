#include <cstdio>
#include <filesystem>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/model_options.h"
#include "lode/cli/plan_target.h"
#include "lode/cli/plan_view.h"
#include "lode/cli/program.h"
#include "lode/cli/rank_runs.h"
#include "lode/cli/stage_chart.h"
#include "lode/cli/target_options.h"
#include "lode/cli/text_file.h"

namespace lode::cli {
namespace {

constexpr std::size_t kMaxReceiptBytes = 64 * kMiB;
// Asking for more of the page cache would take longer than all the rest of a plan.
constexpr std::uint64_t kMostLookedAt = 64 * kGiB;

struct PlanOptions {
  bool json = false;
  bool strict = false;
  std::string svg;
  std::string after;
  std::string machine;  // bytes that it has available; empty: this one
  TargetOptions target;

  // What is asked for that only the plan of a run has.
  const char* only_for_runs(const ModelOptions& options) const {
    if (!options.context.empty()) return "--ctx";
    if (strict) return "--strict";
    if (!svg.empty()) return "--svg";
    return after.empty() ? nullptr : "--after";
  }
};

struct Planned {
  engine::Source source;
  engine::RunPlan plan;
  engine::PlanReport report;
  memory::MachineMemory machine;
  std::optional<std::uint64_t> source_in_cache;
  std::optional<std::uint64_t> disk_free_bytes;

  PlanView view() const {
    return {source, plan, report, machine, source_in_cache, disk_free_bytes};
  }
};

// This machine as it is now, or another one that has so much.
Result<memory::MachineMemory> machine_to_plan_for(const std::string& available) {
  if (available.empty()) return memory::read_machine_memory();
  auto bytes = parse_bytes(available);
  if (!bytes) return at("--machine", std::move(bytes).error());
  return memory::MachineMemory{*bytes, *bytes, {}};
}

// What a run reads or maps: the shards, or the data files of a prepared checkpoint.
std::vector<std::string> source_paths(const engine::Source& source) {
  std::vector<std::string> paths;
  if (source.prepared) {
    for (const io::SourceFile& file : source.prepared->files) paths.push_back(file.path);
  } else {
    for (const checkpoint::Shard& shard : source.index.shards()) paths.push_back(shard.path);
  }
  return paths;
}

std::optional<std::uint64_t> in_page_cache(const engine::Source& source) {
  if (engine::source_bytes(source) > kMostLookedAt) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const std::string& path : source_paths(source)) {
    const auto resident = memory::resident_bytes(path);
    if (!resident) return std::nullopt;
    bytes += *resident;
  }
  return bytes;
}

std::optional<std::uint64_t> disk_free(const std::filesystem::path& folder) {
  std::error_code fault;
  const auto space = std::filesystem::space(folder, fault);
  if (fault) return std::nullopt;
  return std::uint64_t{space.available};
}

Result<Planned> make_plan(const ModelOptions& options, const PlanOptions& how) {
  LODE_TRY(engine::Settings settings, settings_of(options));
  LODE_TRY(settings.ranks, planned_rank(options, how.target.ranks, how.target.rank));
  LODE_TRY(const memory::MachineMemory machine, machine_to_plan_for(how.machine));
  LODE_TRY(engine::Source source, engine::open_source(options.folder, settings.start.verification));
  // A tokenizer that cannot be read is bounded by the size of its file.
  static_cast<void>(engine::open_tokenizer(source));
  LODE_TRY(engine::RunPlan plan, engine::plan_run(source, settings, machine));
  LODE_TRY(engine::PlanReport report, engine::report_of(plan, source));
  const auto cached = in_page_cache(source);
  return Planned{std::move(source), std::move(plan), std::move(report),
                 machine,           cached,          disk_free(options.folder)};
}

Status compare_with(const std::string& path, const Planned& planned, bool as_json) {
  LODE_TRY(const std::string text, read_text_file(path, kMaxReceiptBytes));
  auto receipt = json::parse(text);
  if (!receipt) return at(path, engine::not_a_receipt("other text than JSON"));
  auto after = engine::compare_with_run(planned.plan, planned.source, *receipt);
  if (!after) return at(path, std::move(after).error());
  fmt::print("{}", as_json ? json::dump(after_json(*after), 2) + "\n" : after_text(*after));
  if (after->differences.empty()) return {};
  const bool other_settings = !after->settings.empty();
  return Error{.code = Code::kCheckFailed,
               .thing = "ledger of the run",
               .wanted = "the plan's numbers, byte for byte",
               .found = fmt::format("{} that differ", after->differences.size()),
               .where = path,
               .hint = other_settings ? "the run had other settings: plan with the same"
                                      : "a bug of lode: please report it with this receipt"};
}

Status check_margin(const Planned& planned, bool strict) {
  if (!engine::fits_barely(planned.plan)) return {};
  const std::uint64_t limit = planned.plan.budget.limit_bytes;
  const std::string spare = human_bytes(limit - planned.plan.peak_bytes());
  if (!strict) {
    write_standard_error(fmt::format("lode: warning: fits with only {} to spare of {}\n", spare,
                                     human_bytes(limit)));
    return {};
  }
  return Error{.code = Code::kOverBudget,
               .thing = "this run",
               .wanted = "2 % of the budget or 64 MiB to spare, with --strict",
               .found = fmt::format("{} of {}", spare, human_bytes(limit))};
}

// A preparation, instead of a run.
Status plan_preparation(const ModelOptions& options, const PlanOptions& how) {
  if (const char* const option = how.only_for_runs(options)) {
    return Error{.code = Code::kUsage,
                 .thing = option,
                 .wanted = "the plan of a run, which is for --target cpu",
                 .found = "--target " + how.target.target};
  }
  LODE_TRY(engine::Settings settings, settings_of(options));
  LODE_TRY(settings.scratch, scratch_of(how.target));
  LODE_TRY(const memory::MachineMemory machine, machine_to_plan_for(how.machine));
  return plan_target(options.folder, {settings, machine, how.target, how.json});
}

Status plan(const ModelOptions& options, const PlanOptions& how) {
  if (how.target.is_preparation()) return plan_preparation(options, how);
  LODE_TRY(const Planned planned, make_plan(options, how));
  if (!how.svg.empty()) {
    const engine::RunPlan& made = planned.plan;
    const std::string title =
        fmt::format("{}: memory by stage", engine::label_of(made, planned.source).model);
    LODE_TRY_STATUS(
        write_text_file(how.svg, stage_chart_svg(made.stages, made.budget.limit_bytes, title)));
  }
  if (!how.after.empty()) return compare_with(how.after, planned, how.json);
  const PlanView view = planned.view();
  fmt::print("{}", how.json ? json::dump(plan_json(view), 2) + "\n" : plan_text(view));
  LODE_TRY_STATUS(engine::check_fits(planned.plan, planned.source));
  return check_margin(planned, how.strict);
}

}  // namespace

void add_plan(Program& program) {
  CLI::App* const command = add_command(
      program, "plan",
      "What a run will hold, stage by stage, before anything is read: the loader's own schedule",
      "  lode plan DIR\n  lode plan DIR --memory 12GiB --ctx 32768\n"
      "  lode plan DIR --memory 12GiB --ctx auto --json\n  lode plan DIR --svg plan.svg\n"
      "  lode run DIR -p Once --receipt run.json && lode plan DIR --after run.json\n"
      "  lode plan DIR --target marlin   # what `lode prepare --target marlin` makes and holds\n");
  const auto options = add_model_options(command);
  const auto how = std::make_shared<PlanOptions>();
  command->add_flag("--json", how->json, "Print JSON; the stages have the form of a receipt's");
  command->add_flag("--strict", how->strict,
                    "Exit with 3 also where less than 2 % of the budget, and less than 64 MiB, "
                    "would be to spare");
  command->add_option("--after", how->after,
                      "Compare with this receipt of a run; exit with 12 where the ledger differs");
  command->add_option("--machine", how->machine,
                      "Plan for another machine, which has so much memory available");
  command->add_option("--svg", how->svg, "Draw bytes over stages into this file");
  add_target_options(command, how->target);
  add_placement_options(command, options);
  add_planned_balancing_options(command, options);
  command->callback([&program, options, how] {
    program.chosen = [options, how] { return plan(*options, *how); };
  });
}

}  // namespace lode::cli
