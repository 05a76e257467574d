#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/receipt.h"
#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"
#include "lode/json/json.h"

namespace lode::engine {

/// One number in which a plan and the ledger of a run differ.
struct PlanDifference {
  std::string stage;
  std::string what;  // "peak of weights", "held of kv_cache", "peak", "stage"
  std::uint64_t planned_bytes = 0;
  std::uint64_t actual_bytes = 0;
};

/// A setting that the plan and the run do not share: reason enough for differences.
struct SettingDifference {
  std::string setting;
  std::string planned;
  std::string actual;
};

/// A plan beside the receipt of a run.
struct PlanAfter {
  std::vector<SettingDifference> settings;
  std::vector<PlanDifference> differences;  // none: the ledger recorded what the plan says
  std::uint64_t planned_load_peak_bytes = 0;
  // Nothing where it was not measured.
  std::optional<std::uint64_t> kernel_load_peak_bytes;  // of the whole process
  std::optional<std::uint64_t> kernel_over_finished_bytes;
  std::optional<std::uint64_t> source_cache_bytes;
};

/// What a file is refused with that is not the receipt of a run.
Error not_a_receipt(std::string found);

/// Compares `plan` with what --receipt wrote, stage by stage and tag by tag.
///
/// Errors: kInvalidSource saying what is amiss where `receipt` is not the receipt of a run.
Result<PlanAfter> compare_with_run(const RunPlan& plan, const Source& source,
                                   const json::Value& receipt);

}  // namespace lode::engine
