#include <cstdio>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/model_options.h"
#include "lode/cli/program.h"
#include "lode/cli/stage_chart.h"
#include "lode/cli/table.h"
#include "lode/cli/text_file.h"
#include "lode/engine/stage_json.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

struct PlanOptions {
  bool json = false;
  std::string svg;
};

struct Planned {
  engine::Source source;
  engine::RunPlan plan;
  std::uint32_t largest_context = 0;
  std::uint64_t kv_bytes_per_token = 0;
  std::vector<engine::Advice> advice;
};

std::uint64_t kv_bytes_per_token(const engine::Source& source, const engine::RunPlan& plan) {
  const auto number = static_cast<std::uint32_t>(ops::bytes_per_number(plan.model.kv_format));
  // Between two contexts beyond every window only full layers grow.
  const std::uint64_t far = 1ULL << 24;
  return families::kv_cache_bytes(source.spec, far + 1, number) -
         families::kv_cache_bytes(source.spec, far, number);
}

// A plan may be for another machine: a number that was named is the budget, whatever is here now.
void plan_for_named_budget(engine::RunPlan& plan) {
  if (plan.budget.warning.empty()) return;
  const std::string warning = fmt::format("this machine has only {} available now ({})",
                                          human_bytes(plan.budget.limit_bytes), plan.budget.source);
  plan.budget = {*plan.settings.memory_bytes, 0, "--memory", warning};
}

Result<Planned> make_plan(const ModelOptions& options) {
  LODE_TRY(const engine::Settings settings, settings_of(options));
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  LODE_TRY(engine::Source source, engine::open_source(options.folder));
  LODE_TRY(engine::RunPlan plan, engine::plan_run(source, settings, machine));
  plan_for_named_budget(plan);
  const std::uint32_t context = engine::largest_context(plan, source);
  const std::uint64_t per_token = kv_bytes_per_token(source, plan);
  LODE_TRY(std::vector<engine::Advice> advice, engine::advice(plan, source));
  return Planned{std::move(source), std::move(plan), context, per_token, std::move(advice)};
}

json::Value advice_json(const Planned& planned) {
  json::Array list;
  for (const engine::Advice& advice : planned.advice) {
    list.push_back(json::object({{"setting", advice.setting},
                                 {"saved_bytes", advice.saved_bytes},
                                 {"peak_bytes", advice.peak_bytes},
                                 {"fits", advice.peak_bytes <= planned.plan.budget.limit_bytes}}));
  }
  return json::Value(std::move(list));
}

json::Value as_json(const Planned& planned) {
  const memory::StageUse* const over = engine::first_over(planned.plan);
  const engine::RunPlan& plan = planned.plan;
  return json::object({{"family", planned.source.spec.family},
                       {"target", "cpu"},
                       {"fits", plan.fits()},
                       {"limit_bytes", plan.budget.limit_bytes},
                       {"limit_source", plan.budget.source},
                       {"warning", plan.budget.warning},
                       {"peak_bytes", plan.peak_bytes()},
                       {"source_bytes", planned.source.index.tensor_bytes()},
                       {"weight_bytes", plan.load.weight_bytes()},
                       {"padding_bytes", plan.load.padding_bytes()},
                       {"page_table_bytes", plan.load.page_table_bytes()},
                       {"ring_bytes", plan.load.ring_bytes()},
                       {"metadata_bytes", plan.metadata_bytes},
                       {"kv_bytes", plan.kv_bytes},
                       {"kv_bytes_per_token", planned.kv_bytes_per_token},
                       {"scratch_bytes", plan.scratch_bytes},
                       {"context_tokens", std::int64_t{plan.context_tokens}},
                       {"largest_context_tokens", std::int64_t{planned.largest_context}},
                       {"breaks_first", over == nullptr ? json::Value() : json::Value(over->name)},
                       {"advice", advice_json(planned)},
                       {"stages", engine::as_json(plan.stages)}});
}

std::string mib(std::uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

std::string stage_table(const engine::RunPlan& plan) {
  using memory::Tag;
  Table table({"stage (MiB)", "weights", "kv_cache", "transient", "metadata", "page_tables", "peak",
               "headroom"},
              {1, 2, 3, 4, 5, 6, 7});
  for (const memory::StageUse& stage : plan.stages) {
    const auto peak = [&](Tag tag) { return stage.peak_bytes[static_cast<std::size_t>(tag)]; };
    const auto limit = static_cast<double>(plan.budget.limit_bytes);
    table.add({stage.name, mib(peak(Tag::kWeights)), mib(peak(Tag::kKvCache)),
               mib(peak(Tag::kStaging) + peak(Tag::kScratch)), mib(peak(Tag::kMetadata)),
               mib(peak(Tag::kPageTables)), mib(stage.peak_total_bytes),
               fmt::format("{:.1f}", (limit - static_cast<double>(stage.peak_total_bytes)) /
                                         static_cast<double>(kMiB))});
  }
  return table.text();
}

void print_advice(const Planned& planned) {
  const std::uint64_t limit = planned.plan.budget.limit_bytes;
  if (const memory::StageUse* over = engine::first_over(planned.plan)) {
    fmt::print("breaks    first in stage \"{}\": {} over the budget\n", over->name,
               human_bytes(over->peak_total_bytes - limit));
  }
  for (const engine::Advice& advice : planned.advice) {
    fmt::print("would save {:<9} {}{}\n", human_bytes(advice.saved_bytes), advice.setting,
               !planned.plan.fits() && advice.peak_bytes <= limit ? ", which fits" : "");
  }
}

void print_text(const Planned& planned) {
  const engine::RunPlan& plan = planned.plan;
  const families::ModelSpec& spec = planned.source.spec;
  fmt::print("model     {}  {} layers, {} experts, top {}; {} in {} files\n", spec.family,
             spec.num_layers, spec.router.num_experts, spec.router.top_k,
             human_bytes(planned.source.index.tensor_bytes()),
             planned.source.index.shards().size());
  fmt::print("budget    {} bytes ({}) from {}\n", plan.budget.limit_bytes,
             human_bytes(plan.budget.limit_bytes), plan.budget.source);
  if (!plan.budget.warning.empty()) fmt::print("warning   {}\n", plan.budget.warning);
  fmt::print("weights   {} bytes ({}) on target cpu, {} of them padding\n",
             plan.load.weight_bytes(), human_bytes(plan.load.weight_bytes()),
             human_bytes(plan.load.padding_bytes()));
  fmt::print("kv        {} bytes a token; {} for {} tokens; fits up to {} (model limit {})\n",
             planned.kv_bytes_per_token, human_bytes(plan.kv_bytes), plan.context_tokens,
             planned.largest_context, spec.max_positions);
  fmt::print("work      {} of activations, tiles and logits\n\n", human_bytes(plan.scratch_bytes));
  fmt::print("{}\n", stage_table(plan));
  fmt::print("peak      {} bytes ({})  {}\n", plan.peak_bytes(), human_bytes(plan.peak_bytes()),
             plan.fits() ? "fits" : "DOES NOT FIT");
  print_advice(planned);
  fmt::print("exact: weights, kv, transient, index.  bounded: tokenizer, page tables, program.\n");
}

Status plan(const ModelOptions& options, const PlanOptions& how) {
  LODE_TRY(const Planned planned, make_plan(options));
  if (how.json) {
    fmt::print("{}\n", json::dump(as_json(planned), 2));
  } else {
    print_text(planned);
  }
  if (!how.svg.empty()) {
    const std::string title = fmt::format("{}: bytes held by stage", options.folder);
    LODE_TRY_STATUS(write_text_file(
        how.svg, stage_chart_svg(planned.plan.stages, planned.plan.budget.limit_bytes, title)));
  }
  return engine::check_fits(planned.plan, planned.source);
}

}  // namespace

void add_plan(Program& program) {
  CLI::App* const command = add_command(
      program, "plan",
      "What a run will hold, stage by stage, before anything is read: the loader's own schedule",
      "  lode plan DIR\n  lode plan DIR --memory 12GiB --ctx 32768\n"
      "  lode plan DIR --memory 12GiB --json\n  lode plan DIR --svg plan.svg\n");
  const auto options = add_model_options(command);
  const auto how = std::make_shared<PlanOptions>();
  command->add_flag("--json", how->json, "Print JSON; the stages have the form of a receipt's");
  command->add_option("--svg", how->svg, "Draw bytes over stages into this file");
  command->callback([&program, options, how] {
    program.chosen = [options, how] { return plan(*options, *how); };
  });
}

}  // namespace lode::cli
