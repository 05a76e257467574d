#include "lode/engine/target_plan.h"

#include <algorithm>
#include <utility>

#include "lode/loader/engine_stream.h"
#include "lode/loader/stream.h"

namespace lode::engine {
namespace {

TargetStage stage_of(const loader::EngineBankPlan& bank, const loader::EngineChoice& choice) {
  TargetStage stage{.name = loader::stage_name(bank)};
  for (const targets::EngineTensor& tensor : bank.tensors()) {
    stage.final_bytes += tensor.bytes(bank.shape.num_experts);
    stage.padding_bytes += tensor.padding_bytes * bank.shape.num_experts;
  }
  stage.engines = engine_ways(choice.target, route_from(bank, choice), layer_weights(bank, choice));
  return stage;
}

}  // namespace

TargetPlan target_plan(const loader::EnginePlan& engine, const loader::EngineChoice& choice,
                       loader::LoadPlan load) {
  TargetPlan plan;
  for (loader::StagePlan& stage : load.stages) stage.bank.reset();
  const std::vector<memory::StageUse> dense = loader::expected_stream_stages(load);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const bool of_layer = i < load.stages.size();  // else the last writes are finished
    plan.stages.push_back({.name = dense[i].name,
                           .final_bytes = of_layer ? load.stages[i].slab_bytes : 0,
                           .transient_bytes = dense[i].peak_total_bytes});
    plan.dense_bytes += plan.stages.back().final_bytes;
  }
  const std::vector<memory::StageUse> experts = loader::expected_engine_stages(engine, {}, {});
  for (std::size_t i = 0; i < engine.banks.size(); ++i) {
    TargetStage stage = stage_of(engine.banks[i], choice);
    stage.transient_bytes = experts[i].peak_total_bytes;
    plan.expert_bytes += stage.final_bytes;
    plan.expert_padding_bytes += stage.padding_bytes;
    plan.alignment_bytes += engine.banks[i].bytes - stage.final_bytes;
    plan.stages.push_back(std::move(stage));
  }
  for (const TargetStage& stage : plan.stages) {
    plan.transient_bytes = std::max(plan.transient_bytes, stage.transient_bytes);
  }
  return plan;
}

double times_ours(const EngineWay& way, const TargetStage& stage) {
  if (stage.transient_bytes == 0) return 0;
  return static_cast<double>(way.extra_bytes) / static_cast<double>(stage.transient_bytes);
}

}  // namespace lode::engine
