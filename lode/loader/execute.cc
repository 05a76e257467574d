#include "lode/loader/execute.h"

#include <optional>
#include <utility>

#include "lode/loader/operation_stream.h"
#include "lode/loader/pipeline.h"
#include "lode/loader/stage_guard.h"
#include "lode/loader/weight_set_builder.h"
#include "lode/memory/buffer.h"

namespace lode::loader {
namespace {

// What is held only while bytes flow.
struct Transient {
  memory::Buffer ring;
  memory::Reservation stacks;
  std::unique_ptr<Pipeline> pipeline;  // last: its threads use the ring
};

struct Load {
  const LoadPlan& plan;
  const Binding& binding;
  memory::Ledger& ledger;
  io::ReadEngine& engine;
  Progress& progress;

  Result<Transient> make_transient() const;
  Status run_stage(std::size_t stage_idx, Pipeline& pipeline, WeightSetBuilder& builder) const;
  Result<WeightSet> run() const;
};

Result<Transient> Load::make_transient() const {
  Transient transient;
  LODE_TRY(transient.ring, memory::make_buffer(ledger, memory::Tag::kStaging, plan.ring_bytes(),
                                               "ring between disk and weights"));
  LODE_TRY(transient.stacks, ledger.reserve(memory::Tag::kScratch, plan.stack_bytes(),
                                            "stacks of the loading threads"));
  transient.pipeline = std::make_unique<Pipeline>(plan, transient.ring.mutate(), engine, progress);
  LODE_TRY_STATUS(transient.pipeline->start(plan.policy.workers));
  return transient;
}

Status Load::run_stage(std::size_t stage_idx, Pipeline& pipeline, WeightSetBuilder& builder) const {
  const StagePlan& stage = plan.stages[stage_idx];
  LODE_TRY(const WeightSetBuilder::Slabs slabs, builder.make_slabs(ledger, stage));
  OperationStream stream(plan, binding, stage_idx);
  return pipeline.run(stream, stage, slabs);
}

Result<WeightSet> Load::run() const {
  LODE_TRY_STATUS(plan.check_fits(ledger));
  const StageGuard guard(ledger);
  progress.finished_bytes.store(0, std::memory_order_relaxed);
  progress.read_bytes.store(0, std::memory_order_relaxed);
  progress.total_bytes.store(plan.weight_bytes(), std::memory_order_relaxed);
  WeightSetBuilder builder(plan);
  std::optional<Transient> transient;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    ledger.begin_stage(plan.stages[stage].name);
    progress.stage_idx.store(static_cast<std::uint32_t>(stage), std::memory_order_relaxed);
    if (!transient) {
      LODE_TRY(Transient made, make_transient());
      transient = std::move(made);
    }
    LODE_TRY_STATUS(run_stage(stage, *transient->pipeline, builder));
  }
  LODE_TRY_STATUS(transient->pipeline->finish());
  ledger.begin_stage("seal");
  progress.stage_idx.store(static_cast<std::uint32_t>(plan.stages.size()),
                           std::memory_order_relaxed);
  transient.reset();
  LODE_TRY_STATUS(engine.finish());
  return std::move(builder).finish();
}

}  // namespace

Result<std::unique_ptr<io::ReadEngine>> make_engine(const LoadPlan& plan) {
  return io::make_read_engine(plan.sources, {.kind = plan.policy.io,
                                             .num_threads = plan.policy.readers,
                                             .most_bytes_at_once = plan.ring_bytes()});
}

Result<WeightSet> execute(const LoadPlan& plan, const Binding& binding, memory::Ledger& ledger,
                          io::ReadEngine& engine, Progress* progress) {
  Progress unread;
  return Load{plan, binding, ledger, engine, progress != nullptr ? *progress : unread}.run();
}

}  // namespace lode::loader
