#include "lode/cli/plan_view.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/table.h"

namespace lode::cli {
namespace {

constexpr std::uint64_t kContractBytes = 64 * kMiB;
constexpr std::size_t kShownBreaks = 3;

std::string number(std::uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string model_lines(const PlanView& view) {
  const families::ModelSpec& spec = view.source.spec;
  return fmt::format("model     {}  {}, {} experts, top {}; {} in {}\n", spec.family,
                     number(spec.num_layers, "layer"), spec.router.num_experts, spec.router.top_k,
                     human_bytes(engine::source_bytes(view.source)),
                     number(engine::num_source_files(view.source), "file"));
}

std::string cgroups_text(const memory::MachineMemory& machine) {
  if (machine.cgroups.empty()) return "no control group's limit";
  std::string text;
  for (const memory::CgroupMemory& cgroup : machine.cgroups) {
    const std::uint64_t used = std::min(cgroup.used_bytes, cgroup.limit_bytes);
    text += fmt::format("{}cgroup {} {} of {} free", text.empty() ? "" : "; ", cgroup.path,
                        human_bytes(cgroup.limit_bytes - used), human_bytes(cgroup.limit_bytes));
  }
  return text;
}

std::string machine_lines(const PlanView& view) {
  const memory::Budget& budget = view.plan.budget;
  std::string text =
      fmt::format("machine   {}, MemAvailable {}, {}\n", human_bytes(view.machine.total_bytes),
                  human_bytes(view.machine.available_bytes), cgroups_text(view.machine));
  text += fmt::format("budget    {} bytes ({}) from {}", budget.limit_bytes,
                      human_bytes(budget.limit_bytes), budget.source);
  if (!budget.warning.empty()) {
    text += fmt::format("; --memory names {}, which is not there",
                        human_bytes(view.plan.settings.memory_bytes.value_or(0)));
  }
  if (budget.floor_bytes != 0) {
    text += fmt::format(", {} left to the machine", human_bytes(budget.floor_bytes));
  }
  return text + "\n";
}

// Of what the page cache has, and how the rest comes into memory.
std::string reading_lines(const PlanView& view) {
  const engine::RunPlan& plan = view.plan;
  const loader::LoadPolicy& policy = plan.load.policy;
  std::string text =
      fmt::format("I/O       {} {} {}", human_bytes(engine::source_bytes(view.source)),
                  plan.maps_weights() ? "mapped," : "to read from",
                  number(engine::num_source_files(view.source), "file"));
  if (view.source_in_cache) {
    text += fmt::format(", {} in the page cache now", human_bytes(*view.source_in_cache));
  }
  if (!plan.is_prepared) {
    return text + fmt::format("; --io {}, ring of {} x {}, {} that prepare\n", io::name(policy.io),
                              policy.num_slots, human_bytes(policy.slot_bytes),
                              number(policy.workers, "thread"));
  }
  const prepared::StartPolicy& start = plan.settings.start;
  text += fmt::format("; --start {} --verify {}", name(start.start), name(start.verification));
  if (!plan.maps_weights()) {
    text += fmt::format(" --io {}, {}", io::name(policy.io), number(start.threads, "thread"));
  }
  return text + "\n";
}

std::string target_lines(const PlanView& view) {
  const engine::RunPlan& plan = view.plan;
  const engine::RunLabel label = engine::label_of(plan, view.source);
  return fmt::format(
      "target    {}  compute {}, matrices outside the experts {}, keys and values {}, chunks of "
      "{}, {}\n",
      engine::is_restored(plan)
          ? fmt::format("{}, restored for the cpu at the start, slow;", label.target)
          : label.target,
      label.compute, label.dense, label.kv_dtype, label.chunk_tokens,
      number(label.threads, "thread"));
}

std::string weight_lines(const PlanView& view) {
  const engine::RunPlan& plan = view.plan;
  const engine::KvReport& kv = view.report.kv;
  std::string text = fmt::format("weights   {} bytes ({}) as prepared, {} of them padding\n",
                                 plan.load.weight_bytes(), human_bytes(plan.load.weight_bytes()),
                                 human_bytes(plan.load.padding_bytes()));
  text += fmt::format("kv        {} bytes a token ({})", kv.bytes_per_token,
                      number(kv.full_layers, "full layer"));
  if (kv.windowed_layers > 0) {
    text += fmt::format(" and {} ({})", human_bytes(kv.windowed_bytes),
                        number(kv.windowed_layers, "windowed layer"));
  }
  const std::uint32_t largest = view.report.largest_context_tokens;
  text += fmt::format("; {} for {} tokens; {} (model limit {})\n", human_bytes(plan.kv_bytes),
                      plan.context_tokens,
                      largest == 0 ? "no context fits" : fmt::format("fits up to {}", largest),
                      view.source.spec.max_positions);
  if (plan.no_context_fits) {
    text += fmt::format("context   --ctx auto finds none that fits: planned for {} tokens\n",
                        plan.context_tokens);
  }
  text += fmt::format("work      {} of activations, tiles and logits\n",
                      human_bytes(plan.scratch_bytes));
  if (plan.balancing.table_bytes == 0) return text;
  return text + fmt::format("balance   {} of tables, and up to {} while experts move\n",
                            human_bytes(plan.balancing.table_bytes),
                            human_bytes(plan.balancing.moving_bytes));
}

std::string mib(std::uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

std::string stage_table(const engine::PlanReport& report) {
  Table table({"stage (MiB)", "final", "transient", "page tables", "cache", "total", "headroom",
               "first limit", "adds"},
              {1, 2, 3, 4, 5, 6});
  for (const engine::PlanRow& row : report.rows) {
    table.add(
        {row.stage, mib(row.final_bytes), mib(row.transient_bytes), mib(row.page_table_bytes),
         mib(row.cache_bytes), mib(row.total_bytes),
         fmt::format("{:.1f}", static_cast<double>(row.headroom_bytes) / static_cast<double>(kMiB)),
         row.first_limit, std::string(engine::name(row.adds))});
  }
  return table.text();
}

std::string peak_lines(const PlanView& view) {
  const engine::RunPlan& plan = view.plan;
  const auto peak = std::max_element(
      plan.stages.begin(), plan.stages.end(),
      [](const auto& a, const auto& b) { return a.peak_total_bytes < b.peak_total_bytes; });
  std::string text = fmt::format("peak      {} bytes ({}) in stage \"{}\"  {}\n", plan.peak_bytes(),
                                 human_bytes(plan.peak_bytes()), peak->name,
                                 !plan.fits()                ? "DOES NOT FIT"
                                 : engine::fits_barely(plan) ? "fits, barely"
                                                             : "fits");
  const std::uint64_t kept = plan.load.weight_bytes() + plan.load.page_table_bytes();
  const std::uint64_t beside =
      plan.load_peak_bytes() - std::min(plan.load_peak_bytes(), kept + plan.program_bytes);
  text += fmt::format("load peak weights, their page tables, the program and {} (bound {}: {})\n",
                      human_bytes(beside), human_bytes(kContractBytes),
                      beside <= kContractBytes ? "holds" : "BROKEN");
  return text + fmt::format("largest   contiguous block: {}, {}\n",
                            human_bytes(view.report.largest_block_bytes),
                            view.report.largest_block);
}

std::string break_lines(const PlanView& view) {
  std::string text = "breaks   ";
  if (const memory::StageUse* over = engine::first_over(view.plan)) {
    text += fmt::format(" first in stage \"{}\": {} over the budget;", over->name,
                        human_bytes(over->peak_total_bytes - view.plan.budget.limit_bytes));
  } else {
    text += " nothing.";
  }
  const std::vector<engine::BreakPoint>& breaks = view.report.breaks;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < breaks.size(); ++i) {
    // The highest few, and the last one: below that not even the scan fits.
    if (i >= kShownBreaks && i + 1 < breaks.size()) continue;
    if (i + 1 == breaks.size() && breaks.size() > kShownBreaks + 1) parts.emplace_back("...");
    parts.push_back(fmt::format("below {} {}", human_bytes(breaks[i].need_bytes), breaks[i].stage));
  }
  return text + fmt::format(" {}\n", fmt::join(parts, ", "));
}

std::string disk_line(const PlanView& view) {
  if (view.plan.is_prepared) return "";
  std::string text =
      fmt::format("disk      prepare would write {}", human_bytes(view.report.prepared_bytes));
  if (view.disk_free_bytes) {
    text += fmt::format(" ({} free beside the model)", human_bytes(*view.disk_free_bytes));
  }
  return text + "\n";
}

std::string advice_lines(const PlanView& view) {
  std::string text;
  const std::uint64_t limit = view.plan.budget.limit_bytes;
  for (const engine::Advice& advice : view.report.advice) {
    text += fmt::format("would save {:<9} {}{}\n", human_bytes(advice.saved_bytes), advice.setting,
                        !view.plan.fits() && advice.peak_bytes <= limit ? ", which fits" : "");
  }
  return text;
}

}  // namespace

std::string plan_text(const PlanView& view) {
  const bool counted = view.source.tokenizer.has_value();
  return model_lines(view) + machine_lines(view) + target_lines(view) + reading_lines(view) +
         weight_lines(view) + "\n" + stage_table(view.report) + "\n" + peak_lines(view) +
         break_lines(view) + disk_line(view) + advice_lines(view) +
         fmt::format(
             "exact: weights, kv, transient, work, index{}.  bounded: program, page tables, "
             "reading the tokenizer{}.  estimated: cache.\n",
             counted ? ", tokenizer" : "", counted ? "" : ", tokenizer");
}

std::string after_text(const engine::PlanAfter& after) {
  std::string text;
  for (const engine::SettingDifference& one : after.settings) {
    text += fmt::format("setting   {}: planned {}, run with {}\n", one.setting, one.planned,
                        one.actual);
  }
  Table table({"stage", "what differs (bytes)", "planned", "run", "run less plan"}, {2, 3, 4});
  for (const engine::PlanDifference& one : after.differences) {
    const auto apart =
        static_cast<std::int64_t>(one.actual_bytes) - static_cast<std::int64_t>(one.planned_bytes);
    table.add({one.stage, one.what, fmt::format("{}", one.planned_bytes),
               fmt::format("{}", one.actual_bytes), fmt::format("{:+}", apart)});
  }
  text +=
      after.differences.empty() ? "ledger    0 bytes apart in every stage and tag\n" : table.text();
  if (!after.kernel_load_peak_bytes) return text + "kernel    was not asked\n";
  const auto apart = static_cast<double>(after.planned_load_peak_bytes) -
                     static_cast<double>(*after.kernel_load_peak_bytes);
  text +=
      fmt::format("kernel    whole process at load peak {} bytes ({}), planned {} ({:+.1f} MiB)",
                  *after.kernel_load_peak_bytes, human_bytes(*after.kernel_load_peak_bytes),
                  after.planned_load_peak_bytes, apart / static_cast<double>(kMiB));
  if (after.kernel_over_finished_bytes) {
    text +=
        fmt::format("; {} over finished weights", human_bytes(*after.kernel_over_finished_bytes));
  }
  if (after.source_cache_bytes) {
    text += fmt::format("; {} of the sources left in the page cache",
                        human_bytes(*after.source_cache_bytes));
  }
  return text + "\n";
}

}  // namespace lode::cli
