#pragma once

#include <string>

#include "lode/base/result.h"
#include "lode/cli/target_options.h"
#include "lode/engine/run_plan.h"

namespace lode::cli {

/// Prints what `lode prepare --target` would make of the checkpoint in `folder`, what it would hold
/// meanwhile, and what the engines' own preparation takes for the same. Of the settings those of
/// the load count.
///
/// Errors: those of opening the source, of choice_of, plan_load and plan_engine.
Status plan_target(const std::string& folder, const engine::Settings& settings,
                   const TargetOptions& options, bool as_json);

}  // namespace lode::cli
