#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/engine/engine_ways.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/plan.h"

namespace lode::engine {

/// One stage of a preparation for a GPU engine.
struct TargetStage {
  std::string name{};                 // "layer 3", "finish", "experts of layer 3"
  std::uint64_t final_bytes = 0;      // that it makes; padding is in it
  std::uint64_t padding_bytes = 0;    // of them, what holds nothing of the checkpoint
  std::uint64_t transient_bytes = 0;  // held while it lasts: what is made goes to the disk
  std::vector<EngineWay> engines{};   // the same step, as engines do it; empty: not of experts
};

/// What `lode prepare --target` makes of a checkpoint, holds meanwhile, and spares.
struct TargetPlan {
  std::vector<TargetStage> stages;
  std::uint64_t expert_bytes = 0;          // as the engine holds them, padding included
  std::uint64_t expert_padding_bytes = 0;  // of them
  std::uint64_t alignment_bytes = 0;       // between the tensors in the file, beside them
  std::uint64_t dense_bytes = 0;           // everything else, as stored
  std::uint64_t transient_bytes = 0;       // the most of any stage
};

/// The stages outside the experts come first, as they do in a preparation. What is held is the
/// ledger's of a `loader::stream` and a `loader::stream_engine`, byte for byte.
TargetPlan target_plan(const loader::EnginePlan& engine, const loader::EngineChoice& choice,
                       loader::LoadPlan load);

/// How many times what we hold an engine's way takes; 0 where we hold nothing.
double times_ours(const EngineWay& way, const TargetStage& stage);

}  // namespace lode::engine
