#include "lode/engine/plan_after.h"

#include <algorithm>

#include "lode/base/fmt.h"
#include "lode/engine/stage_json.h"

namespace lode::engine {
namespace {

using memory::StageUse;

// A number of bytes, or nothing where it was not measured.
Result<std::optional<std::uint64_t>> bytes_of(const json::Value& kernel, std::string_view name) {
  const json::Value* const value = kernel.find(name);
  if (value != nullptr && value->is_null()) return std::optional<std::uint64_t>{};
  const std::int64_t* const bytes = value == nullptr ? nullptr : value->as_int();
  if (bytes == nullptr || *bytes < 0) {
    return not_a_receipt(fmt::format("no number of bytes as kernel.{}", name));
  }
  return std::optional(static_cast<std::uint64_t>(*bytes));
}

// The settings of the run. A receipt of `lode prepare` has none that a run could have.
Result<const json::Value*> run_of(const json::Value& receipt) {
  const json::Value* const run = receipt.find("run");
  const json::Value* const context = run == nullptr ? nullptr : run->find("context_tokens");
  const std::int64_t* const tokens = context == nullptr ? nullptr : context->as_int();
  if (tokens == nullptr || *tokens <= 0) return not_a_receipt("no settings of a run");
  return run;
}

std::string shown(const json::Value* value) {
  if (value == nullptr) return "unknown";
  return value->as_string() != nullptr ? *value->as_string() : json::dump(*value);
}

// Settings in the form of the receipt, so that both sides are compared as the same text.
std::vector<SettingDifference> settings_that_differ(const json::Value& planned,
                                                    const json::Value& actual) {
  std::vector<SettingDifference> list;
  for (const json::Member& member : *planned.as_object()) {
    // What was asked for does not matter where the same came of it.
    if (member.first == "context_auto") continue;
    const std::string mine = shown(&member.second);
    const std::string theirs = shown(actual.find(member.first));
    if (mine != theirs) list.push_back({member.first, mine, theirs});
  }
  return list;
}

void compare(const StageUse& planned, const StageUse& actual, std::vector<PlanDifference>& list) {
  const auto add = [&](std::string what, std::uint64_t mine, std::uint64_t theirs) {
    if (mine != theirs) list.push_back({planned.name, std::move(what), mine, theirs});
  };
  for (std::size_t i = 0; i < memory::kNumTags; ++i) {
    const std::string_view tag = memory::name(static_cast<memory::Tag>(i));
    add(fmt::format("peak of {}", tag), planned.peak_bytes[i], actual.peak_bytes[i]);
    add(fmt::format("{} held at its end", tag), planned.held_bytes[i], actual.held_bytes[i]);
  }
  add("peak", planned.peak_total_bytes, actual.peak_total_bytes);
}

std::vector<PlanDifference> stages_that_differ(const std::vector<StageUse>& planned,
                                               const std::vector<StageUse>& actual) {
  std::vector<PlanDifference> list;
  const auto named = [](const std::vector<StageUse>& stages, const std::string& name) {
    return std::find_if(stages.begin(), stages.end(),
                        [&](const StageUse& stage) { return stage.name == name; });
  };
  for (const StageUse& stage : planned) {
    const auto run = named(actual, stage.name);
    if (run != actual.end()) {
      compare(stage, *run, list);
    } else {
      list.push_back({stage.name, "stage that the run did not have", stage.peak_total_bytes, 0});
    }
  }
  for (const StageUse& stage : actual) {
    if (named(planned, stage.name) != planned.end()) continue;
    list.push_back({stage.name, "stage that the plan does not have", 0, stage.peak_total_bytes});
  }
  return list;
}

}  // namespace

Error not_a_receipt(std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = "not a run's receipt",
          .wanted = "what --receipt of run, bench, logits or perplexity wrote",
          .found = std::move(found)};
}

Result<PlanAfter> compare_with_run(const RunPlan& plan, const Source& source,
                                   const json::Value& receipt) {
  LODE_TRY(const json::Value* const run, run_of(receipt));
  const json::Value* const actual = receipt.find("actual");
  if (actual == nullptr) return not_a_receipt("no stages of a run");
  auto stages = stages_of(*actual);
  if (!stages) return not_a_receipt(to_string(stages.error()));
  const json::Value* const kernel = receipt.find("kernel");
  if (kernel == nullptr) return not_a_receipt("nothing that the kernel saw");
  PlanAfter after;
  after.settings = settings_that_differ(as_json(label_of(plan, source)), *run);
  after.differences = stages_that_differ(plan.stages, *stages);
  after.planned_load_peak_bytes = plan.load_peak_bytes();
  LODE_TRY(after.kernel_load_peak_bytes, bytes_of(*kernel, "peak_total_bytes"));
  LODE_TRY(after.kernel_over_finished_bytes, bytes_of(*kernel, "peak_over_finished_bytes"));
  LODE_TRY(after.source_cache_bytes, bytes_of(*kernel, "source_cache_bytes"));
  return after;
}

}  // namespace lode::engine
