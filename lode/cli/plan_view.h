#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lode/engine/plan_after.h"
#include "lode/engine/plan_report.h"
#include "lode/json/json.h"
#include "lode/memory/budget.h"

namespace lode::cli {

/// A plan and what is told about it.
struct PlanView {
  const engine::Source& source;
  const engine::RunPlan& plan;
  const engine::PlanReport& report;
  memory::MachineMemory machine;                 // that the plan was made for
  std::optional<std::uint64_t> source_in_cache;  // bytes; nothing where that was not looked at
  std::optional<std::uint64_t> disk_free_bytes;  // beside the model
};

/// Lines for people: model, machine, target, I/O, the table of stages, what breaks, what would
/// help.
std::string plan_text(const PlanView& view);

/// The same as JSON; the stages have the form of a receipt's.
json::Value plan_json(const PlanView& view);

/// What a run did beside its plan.
std::string after_text(const engine::PlanAfter& after);
json::Value after_json(const engine::PlanAfter& after);

}  // namespace lode::cli
