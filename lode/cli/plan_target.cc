#include "lode/cli/plan_target.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/table.h"
#include "lode/engine/prepare_run.h"
#include "lode/engine/source.h"
#include "lode/engine/target_plan.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

using engine::EngineWay;
using engine::TargetPlan;
using engine::TargetStage;

struct View {
  const engine::Source& source;
  const TargetOptions& options;
  const engine::NewPreparation& made;
  const TargetPlan& plan;

  std::size_t num_experts() const { return made.run.engine->banks.front().experts.size(); }
  std::string_view dense() const { return loader::name(made.run.load->policy.dense); }
  // Program, index and tables: what a preparation holds throughout.
  std::uint64_t kept_bytes() const { return made.run.peak_bytes() - plan.transient_bytes; }
};

json::Value as_json(const TargetStage& stage) {
  json::Array engines;
  for (const EngineWay& way : stage.engines) {
    engines.push_back(json::object({{"way", way.name},
                                    {"when", way.when},
                                    {"formula", way.formula},
                                    {"extra_bytes", way.extra_bytes},
                                    {"times_ours", engine::times_ours(way, stage)}}));
  }
  return json::object({{"name", stage.name},
                       {"final_bytes", stage.final_bytes},
                       {"padding_bytes", stage.padding_bytes},
                       {"transient_bytes", stage.transient_bytes},
                       {"engines", json::Value(std::move(engines))}});
}

json::Value as_json(const View& view) {
  const TargetPlan& plan = view.plan;
  json::Array stages;
  for (const TargetStage& stage : plan.stages) stages.push_back(as_json(stage));
  return json::object({{"family", view.source.spec.family},
                       {"target", view.options.target},
                       {"experts", static_cast<std::uint64_t>(view.num_experts())},
                       {"source_bytes", engine::source_bytes(view.source)},
                       {"expert_bytes", plan.expert_bytes},
                       {"expert_padding_bytes", plan.expert_padding_bytes},
                       {"alignment_bytes", plan.alignment_bytes},
                       {"dense_bytes", plan.dense_bytes},
                       {"dense", view.dense()},
                       {"total_bytes", view.made.output_bytes},
                       {"transient_bytes", plan.transient_bytes},
                       {"kept_bytes", view.kept_bytes()},
                       {"peak_bytes", view.made.run.peak_bytes()},
                       {"limit_bytes", view.made.run.budget.limit_bytes},
                       {"stages", json::Value(std::move(stages))}});
}

bool alike(const TargetStage& a, const TargetStage& b) {
  const auto extra = [](const EngineWay& x, const EngineWay& y) {
    return x.name == y.name && x.extra_bytes == y.extra_bytes;
  };
  return a.final_bytes == b.final_bytes && a.padding_bytes == b.padding_bytes &&
         a.transient_bytes == b.transient_bytes && std::ranges::equal(a.engines, b.engines, extra);
}

// Stages in a row that are alike: "layer 0" to "layer 4" are "layer 0-4".
struct Run {
  const TargetStage* first;
  const TargetStage* last;

  std::string name() const {
    if (first == last) return first->name;
    return first->name + "-" + last->name.substr(last->name.rfind(' ') + 1);
  }
};

std::vector<Run> runs_of(const TargetPlan& plan) {
  std::vector<Run> runs;
  for (const TargetStage& stage : plan.stages) {
    if (!runs.empty() && alike(*runs.back().first, stage)) {
      runs.back().last = &stage;
    } else {
      runs.push_back({&stage, &stage});
    }
  }
  return runs;
}

std::string exact(std::uint64_t bytes) {
  return fmt::format("{} bytes ({})", bytes, human_bytes(bytes));
}

std::string stage_table(const std::vector<Run>& runs) {
  Table table({"stage", "final", "of it padding", "transient"}, {1, 2, 3});
  for (const Run& run : runs) {
    table.add({run.name(), human_bytes(run.first->final_bytes),
               human_bytes(run.first->padding_bytes), human_bytes(run.first->transient_bytes)});
  }
  return table.text();
}

// For each kind of layer: ours, then the engines' ways.
std::string way_table(const std::vector<Run>& runs) {
  Table table({"extra for each layer", "", "formula", "bytes", "", "times ours"}, {3, 4, 5});
  for (const Run& run : runs) {
    const TargetStage& stage = *run.first;
    if (stage.engines.empty()) continue;
    table.add({run.name(), "", "", "", "", ""});
    table.add({"  lode prepare", "",
               "an expert or two as stored, or windows of one, and units that are made",
               fmt::format("{}", stage.transient_bytes), human_bytes(stage.transient_bytes), "1"});
    for (const EngineWay& way : stage.engines) {
      table.add({fmt::format("  {}", way.name), std::string(way.when), std::string(way.formula),
                 fmt::format("{}", way.extra_bytes), human_bytes(way.extra_bytes),
                 fmt::format("{:.1f}", engine::times_ours(way, stage))});
    }
  }
  return table.text();
}

// What `lode prepare --memory` needs, and why not less.
std::string memory_text(const View& view) {
  const engine::PrepareRun& run = view.made.run;
  std::string text =
      fmt::format("memory    {} is what `lode prepare` needs, in all\n", exact(run.peak_bytes()));
  text +=
      fmt::format("transient {} of them, at most in a stage\n", exact(view.plan.transient_bytes));
  text +=
      fmt::format("throughout {} of them: program, index and tables\n", exact(view.kept_bytes()));
  text +=
      "          an expert or two, or windows of larger ones, and units of fixed sizes: with less "
      "--memory nothing\n          begins, with more nothing changes; a smaller --scratch needs "
      "less, "
      "and --export, which copies all\n          else, may begin with less\n";
  text +=
      fmt::format("budget    {} from {}: {}\n", exact(run.budget.limit_bytes), run.budget.source,
                  run.peak_bytes() <= run.budget.limit_bytes ? "fits" : "does not fit");
  return text;
}

std::string text_of(const View& view) {
  const TargetPlan& plan = view.plan;
  const std::vector<Run> runs = runs_of(plan);
  std::string text =
      fmt::format("model     {}  {} layers, {} experts, {} in files\n", view.source.spec.family,
                  view.source.spec.num_layers, view.source.spec.router.num_experts,
                  human_bytes(engine::source_bytes(view.source)));
  text += fmt::format("target    {}, {} experts of each layer\n", view.options.target,
                      view.num_experts());
  text += fmt::format("experts   {}, as the engine holds them\n", exact(plan.expert_bytes));
  text += fmt::format("padding   {} of them\n", exact(plan.expert_padding_bytes));
  text += fmt::format("file      {} more, between tensors that begin on whole pages\n",
                      exact(plan.alignment_bytes));
  text += fmt::format("dense     {}, {}\n", exact(plan.dense_bytes), view.dense());
  text += fmt::format("total     {} on the disk, and whole pages\n", exact(view.made.output_bytes));
  text += memory_text(view) + "\n";
  text += stage_table(runs) + "\n" + way_table(runs);
  return text +
         "W13, W2: weights of gate and up, and of down, of all experts of the layer; S: scales.\n"
         "The engines' formulas are what their code takes beside the layer at worst, not "
         "measured.\n";
}

}  // namespace

Status plan_target(const std::string& folder, const TargetPlanRequest& request) {
  LODE_TRY(const engine::Source source, engine::open_source(folder));
  LODE_TRY_STATUS(engine::check_not_prepared(source));
  LODE_TRY(const loader::EngineChoice choice,
           choice_of(request.options, source.spec.router.num_experts));
  LODE_TRY(const engine::NewPreparation made,
           engine::plan_new_prepare(source, request.settings, request.machine, choice));
  const TargetPlan plan = engine::target_plan(*made.run.engine, choice, *made.run.load);
  const View view{source, request.options, made, plan};
  fmt::print("{}", request.as_json ? json::dump(as_json(view), 2) + "\n" : text_of(view));
  return engine::check_fits(made.run);
}

}  // namespace lode::cli
