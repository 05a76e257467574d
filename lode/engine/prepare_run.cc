#include "lode/engine/prepare_run.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/prepared/export.h"

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

// All but the folder.
Result<PrepareRun> begin_run(const Source& source, const Settings& settings,
                             const memory::MachineMemory& machine,
                             const loader::EngineChoice& choice) {
  LODE_TRY_STATUS(check_not_prepared(source));
  PrepareRun run;
  run.budget = memory::decide_budget(machine, settings.memory_bytes);
  run.metadata_bytes = source.index.held_bytes() + source.binding.held_bytes() + kProgramBytes;
  LODE_TRY(loader::LoadPlan load,
           loader::plan_load(source.binding, source.spec, source.index, settings.load));
  run.load = std::make_unique<loader::LoadPlan>(std::move(load));
  if (!choice.is_cpu()) {
    LODE_TRY(loader::EnginePlan engine,
             loader::plan_engine(source.binding, choice, settings.load.workers, settings.scratch));
    run.engine = std::make_unique<loader::EnginePlan>(std::move(engine));
  }
  return run;
}

prepared::Input input_of(const Source& source, const PrepareRun& run,
                         const loader::EngineChoice& choice) {
  return {.folder = source.folder,
          .index = source.index,
          .binding = source.binding,
          .plan = *run.load,
          .family = source.spec.family,
          .engine = run.engine.get(),
          .choice = choice};
}

}  // namespace

std::uint64_t PrepareRun::peak_bytes() const {
  std::uint64_t peak = 0;
  for (const StageUse& stage : stages) peak = std::max(peak, stage.peak_total_bytes);
  return peak;
}

Status check_fits(const PrepareRun& run) {
  const std::uint64_t peak = run.peak_bytes();
  if (peak <= run.budget.limit_bytes) return {};
  return Error{.code = Code::kOverBudget,
               .thing = "this preparation",
               .wanted = fmt::format("{} bytes ({}), {}", peak, human_bytes(peak),
                                     run.engine ? "however many experts and layers the model has"
                                                : "whatever the model's size"),
               .found = fmt::format("{} bytes ({}) from {}", run.budget.limit_bytes,
                                    human_bytes(run.budget.limit_bytes), run.budget.source),
               .hint = fmt::format("--memory {} fits{}", peak,
                                   run.engine ? "; a smaller --scratch needs less" : "")};
}

Result<PrepareRun> plan_prepare(const Source& source, const Settings& settings,
                                const memory::MachineMemory& machine,
                                const PrepareRequest& request) {
  LODE_TRY(PrepareRun run, begin_run(source, settings, machine, request.choice));
  const prepared::Input input = input_of(source, run, request.choice);
  if (request.as_safetensors) {
    LODE_TRY(run.preparation, prepared::open_export(input, request.out, request.options));
  } else {
    LODE_TRY(run.preparation, prepared::Preparation::open(input, request.out, request.options));
  }
  plan_stages(run);
  LODE_TRY_STATUS(check_fits(run));
  return run;
}

Result<NewPreparation> plan_new_prepare(const Source& source, const Settings& settings,
                                        const memory::MachineMemory& machine,
                                        const loader::EngineChoice& choice) {
  LODE_TRY(PrepareRun run, begin_run(source, settings, machine, choice));
  memory::TagBytes held{};
  of(held, Tag::kMetadata) = run.metadata_bytes;
  LODE_TRY(prepared::NewFolder folder,
           prepared::plan_new_folder(input_of(source, run, choice), held));
  run.stages = std::move(folder.stages);
  return NewPreparation{std::move(run), folder.output_bytes};
}

Result<std::vector<std::uint32_t>> experts_of_rank(std::uint32_t num_experts, std::uint32_t ranks,
                                                   std::uint32_t rank) {
  if (ranks > num_experts) {
    return Error{
        .code = Code::kUsage,
        .thing = "--ranks",
        .wanted = fmt::format("at most {}: a layer has so many experts, and each rank holds "
                              "at least one",
                              num_experts),
        .found = fmt::format("{}", ranks)};
  }
  if (ranks == 0 || rank >= ranks) {
    return Error{.code = Code::kUsage,
                 .thing = "--ranks and --rank",
                 .wanted = fmt::format("1 to {} ranks, and one of them from 0 on", num_experts),
                 .found = fmt::format("rank {} of {}", rank, ranks)};
  }
  std::vector<std::uint32_t> experts;
  if (ranks == 1) return experts;
  const std::uint32_t base = num_experts / ranks;
  const std::uint32_t rest = num_experts % ranks;
  const std::uint32_t first = rank * base + std::min(rank, rest);
  for (std::uint32_t i = 0; i < base + (rank < rest ? 1 : 0); ++i) experts.push_back(first + i);
  return experts;
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
