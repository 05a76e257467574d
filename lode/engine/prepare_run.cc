#include "lode/engine/prepare_run.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

using memory::StageUse;
using memory::Tag;

void plan_stages(PrepareRun& run) {
  StageUse scan{.name = "scan"};
  of(scan.held_bytes, Tag::kMetadata) = run.metadata_bytes;
  run.stages = run.preparation->expected_stages(scan.held_bytes);
  of(scan.held_bytes, Tag::kMetadata) += run.preparation->table_bytes();
  scan.peak_bytes = scan.held_bytes;
  scan.peak_total_bytes = memory::total(scan.held_bytes);
  run.stages.insert(run.stages.begin(), std::move(scan));
}

Status check_fits(const PrepareRun& run) {
  const std::uint64_t peak = run.peak_bytes();
  if (peak <= run.budget.limit_bytes) return {};
  return Error{
      .code = Code::kOverBudget,
      .thing = "this preparation",
      .wanted = fmt::format("{} bytes ({}), whatever the model's size", peak, human_bytes(peak)),
      .found = fmt::format("{} bytes ({}) from {}", run.budget.limit_bytes,
                           human_bytes(run.budget.limit_bytes), run.budget.source),
      .hint = fmt::format("--memory {} fits", peak)};
}

}  // namespace

std::uint64_t PrepareRun::peak_bytes() const {
  std::uint64_t peak = 0;
  for (const StageUse& stage : stages) peak = std::max(peak, stage.peak_total_bytes);
  return peak;
}

Result<PrepareRun> plan_prepare(const Source& source, const Settings& settings,
                                const memory::MachineMemory& machine,
                                const std::filesystem::path& out,
                                const prepared::Options& options) {
  LODE_TRY_STATUS(check_not_prepared(source));
  PrepareRun run;
  run.budget = memory::decide_budget(machine, settings.memory_bytes);
  run.metadata_bytes = source.index.held_bytes() + source.binding.held_bytes() + kProgramBytes;
  LODE_TRY(loader::LoadPlan load,
           loader::plan_load(source.binding, source.spec, source.index, settings.load));
  run.load = std::make_unique<loader::LoadPlan>(std::move(load));
  LODE_TRY(run.preparation,
           prepared::Preparation::open(
               {source.folder, source.index, source.binding, *run.load, source.spec.family}, out,
               options));
  plan_stages(run);
  LODE_TRY_STATUS(check_fits(run));
  return run;
}

Result<prepared::Report> run_prepare(const PrepareRun& run, memory::Ledger& ledger,
                                     loader::Progress* progress) {
  ledger.begin_stage("scan");
  auto metadata = ledger.reserve(Tag::kMetadata, run.metadata_bytes, "index and binding");
  if (!metadata) {
    ledger.end_stage();
    return std::move(metadata).error();
  }
  auto report = run.preparation->run(ledger, progress);
  ledger.end_stage();
  return report;
}

}  // namespace lode::engine
