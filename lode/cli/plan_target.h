#pragma once

#include <string>

#include "lode/base/result.h"
#include "lode/cli/target_options.h"
#include "lode/engine/run_plan.h"
#include "lode/memory/budget.h"

namespace lode::cli {

/// What a preparation is planned with.
struct TargetPlanRequest {
  const engine::Settings& settings;  // those of the budget and of the load count
  const memory::MachineMemory& machine;
  const TargetOptions& options;
  bool as_json = false;
};

/// Prints what `lode prepare --target` would make of the checkpoint in `folder`, what it would hold
/// meanwhile, and what the engines' own preparation takes for the same.
///
/// Errors: those of opening the source, of choice_of and plan_new_prepare; kOverBudget, after all
/// is
///         printed, as the preparation itself would say it.
Status plan_target(const std::string& folder, const TargetPlanRequest& request);

}  // namespace lode::cli
