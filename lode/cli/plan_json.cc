#include "lode/cli/plan_view.h"
#include "lode/engine/stage_json.h"

namespace lode::cli {
namespace {

json::Value or_null(const std::optional<std::uint64_t>& bytes) {
  return bytes ? json::Value(*bytes) : json::Value();
}

json::Value machine_json(const memory::MachineMemory& machine) {
  json::Array cgroups;
  for (const memory::CgroupMemory& cgroup : machine.cgroups) {
    cgroups.push_back(json::object({{"path", cgroup.path},
                                    {"limit_bytes", cgroup.limit_bytes},
                                    {"used_bytes", cgroup.used_bytes}}));
  }
  return json::object({{"total_bytes", machine.total_bytes},
                       {"available_bytes", machine.available_bytes},
                       {"cgroups", json::Value(std::move(cgroups))}});
}

json::Value table_json(const engine::PlanReport& report) {
  json::Array rows;
  for (const engine::PlanRow& row : report.rows) {
    rows.push_back(json::object({{"stage", row.stage},
                                 {"final_bytes", row.final_bytes},
                                 {"transient_bytes", row.transient_bytes},
                                 {"page_table_bytes", row.page_table_bytes},
                                 {"cache_bytes", row.cache_bytes},
                                 {"total_bytes", row.total_bytes},
                                 {"headroom_bytes", row.headroom_bytes},
                                 {"first_limit", row.first_limit},
                                 {"adds", std::string(engine::name(row.adds))}}));
  }
  return json::Value(std::move(rows));
}

json::Value breaks_json(const engine::PlanReport& report) {
  json::Array list;
  for (const engine::BreakPoint& point : report.breaks) {
    list.push_back(json::object({{"stage", point.stage}, {"below_bytes", point.need_bytes}}));
  }
  return json::Value(std::move(list));
}

json::Value advice_json(const PlanView& view) {
  json::Array list;
  for (const engine::Advice& advice : view.report.advice) {
    list.push_back(json::object({{"setting", advice.setting},
                                 {"saved_bytes", advice.saved_bytes},
                                 {"peak_bytes", advice.peak_bytes},
                                 {"fits", advice.peak_bytes <= view.plan.budget.limit_bytes}}));
  }
  return json::Value(std::move(list));
}

json::Value kv_json(const PlanView& view) {
  const engine::KvReport& kv = view.report.kv;
  return json::object({{"full_layers", std::int64_t{kv.full_layers}},
                       {"windowed_layers", std::int64_t{kv.windowed_layers}},
                       {"bytes_per_token", kv.bytes_per_token},
                       {"windowed_bytes", kv.windowed_bytes}});
}

json::Value marks_json(const PlanView& view) {
  const char* const tokenizer = view.source.tokenizer ? "exact" : "bounded";
  return json::object({{"weights", "exact"},
                       {"kv_cache", "exact"},
                       {"transient", "exact"},
                       {"work", "exact"},
                       {"index", "exact"},
                       {"tokenizer", tokenizer},
                       {"program", "bounded"},
                       {"page_tables", "bounded"},
                       {"reading_tokenizer", "bounded"},
                       {"cache", "estimated"}});
}

}  // namespace

json::Value plan_json(const PlanView& view) {
  const engine::RunPlan& plan = view.plan;
  const engine::PlanReport& report = view.report;
  const memory::StageUse* const over = engine::first_over(plan);
  return json::object(
      {{"family", view.source.spec.family},
       {"target", engine::label_of(plan, view.source).target},
       {"run", engine::as_json(engine::label_of(plan, view.source))},
       {"machine", machine_json(view.machine)},
       {"fits", plan.fits()},
       {"fits_barely", engine::fits_barely(plan)},
       {"limit_bytes", plan.budget.limit_bytes},
       {"limit_source", plan.budget.source},
       {"wanted_bytes", or_null(plan.settings.memory_bytes)},
       {"floor_bytes", plan.budget.floor_bytes},
       {"warning", plan.budget.warning},
       {"peak_bytes", plan.peak_bytes()},
       {"load_peak_bytes", plan.load_peak_bytes()},
       {"source_bytes", engine::source_bytes(view.source)},
       {"source_files", static_cast<std::uint64_t>(engine::num_source_files(view.source))},
       {"source_cache_bytes", or_null(view.source_in_cache)},
       {"io", plan.maps_weights() ? json::Value()
                                  : json::Value(std::string(io::name(plan.load.policy.io)))},
       {"weight_bytes", plan.load.weight_bytes()},
       {"padding_bytes", plan.load.padding_bytes()},
       {"page_table_bytes", plan.load.page_table_bytes()},
       {"ring_bytes", plan.load.ring_bytes()},
       {"metadata_bytes", plan.metadata_bytes},
       {"program_bytes", plan.program_bytes},
       {"kv_bytes", plan.kv_bytes},
       {"kv_bytes_per_token", report.kv.bytes_per_token},
       {"kv", kv_json(view)},
       {"scratch_bytes", plan.scratch_bytes},
       {"balancing_table_bytes", plan.balancing.table_bytes},
       {"balancing_moving_bytes", plan.balancing.moving_bytes},
       {"context_tokens", std::int64_t{plan.context_tokens}},
       {"no_context_fits", plan.no_context_fits},
       {"largest_context_tokens", std::int64_t{report.largest_context_tokens}},
       {"model_context_tokens", std::int64_t{view.source.spec.max_positions}},
       {"largest_block_bytes", report.largest_block_bytes},
       {"largest_block", report.largest_block},
       {"is_prepared", plan.is_prepared},
       {"prepared_bytes", plan.is_prepared ? json::Value() : json::Value(report.prepared_bytes)},
       {"disk_free_bytes", or_null(view.disk_free_bytes)},
       {"breaks_first", over == nullptr ? json::Value() : json::Value(over->name)},
       {"breaks", breaks_json(report)},
       {"advice", advice_json(view)},
       {"marks", marks_json(view)},
       {"table", table_json(report)},
       {"stages", engine::as_json(plan.stages)}});
}

json::Value after_json(const engine::PlanAfter& after) {
  json::Array settings;
  for (const engine::SettingDifference& one : after.settings) {
    settings.push_back(
        json::object({{"setting", one.setting}, {"planned", one.planned}, {"actual", one.actual}}));
  }
  json::Array differences;
  for (const engine::PlanDifference& one : after.differences) {
    differences.push_back(json::object({{"stage", one.stage},
                                        {"what", one.what},
                                        {"planned_bytes", one.planned_bytes},
                                        {"actual_bytes", one.actual_bytes}}));
  }
  return json::object({{"equal", after.differences.empty()},
                       {"settings", json::Value(std::move(settings))},
                       {"differences", json::Value(std::move(differences))},
                       {"planned_load_peak_bytes", after.planned_load_peak_bytes},
                       {"kernel_load_peak_bytes", or_null(after.kernel_load_peak_bytes)},
                       {"kernel_over_finished_bytes", or_null(after.kernel_over_finished_bytes)},
                       {"source_cache_bytes", or_null(after.source_cache_bytes)}});
}

}  // namespace lode::cli
