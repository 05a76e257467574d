#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/io/read_engine.h"
#include "lode/loader/drain.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"

namespace lode::loader {

/// Where a stream of banks begins: what lies before was taken by an earlier one.
struct EngineStart {
  std::size_t bank_idx = 0;
  std::uint64_t offset_bytes = 0;  // a multiple of ChunkRun::kChunkBytes
  // Whether the first loss is refused: what lies before is looked at then, too, in a stage of its
  // own.
  bool is_strict = false;
};

/// What the target's layout lost of a layer.
struct LayerLosses {
  std::size_t layer = 0;
  targets::LossCounts counts;
};

/// What was seen of the numbers on the way.
struct EngineFindings {
  std::uint64_t unequal_pairs = 0;  // experts whose gate and up have different scales of the matrix
  std::uint64_t implausible_scales = 0;  // of matrices: see is_plausible
  std::vector<LayerLosses> losses;       // of the layers that lost something
};

struct EngineStreamParts {
  memory::Ledger& ledger;
  io::ReadEngine& engine;
  ChunkSink& sink;
  Progress* progress = nullptr;
  EngineStart start{};
  EngineFindings* findings = nullptr;
  const checkpoint::TensorIndex* index = nullptr;  // to name the tensor of a number that is refused
};

/// Bytes of what is made and on its way to the sink.
std::uint64_t engine_output_bytes(const EnginePlan& plan) noexcept;

/// "experts of layer 3": the stage of a bank.
std::string stage_name(const EngineBankPlan& bank);

/// What the ledger will have recorded when `stream_engine` has run, byte for byte: a stage a bank
/// that is not before the start.
std::vector<memory::StageUse> expected_engine_stages(const EnginePlan& plan,
                                                     const EngineStart& start,
                                                     const memory::TagBytes& held_before);

/// Adds the banks to what the progress has of the dense slabs, and makes the tensors of all banks,
/// expert by expert and unit by unit, and hands them to `sink` as runs of whole chunks. At no time
/// is more of the weights in memory than an expert or two as they are stored, or windows of one,
/// and some units of what they become.
///
/// Errors: kOverBudget; kInvalidSource naming layer, expert and place of a bad scale; kCheckFailed
///         naming the first tensor that loses something, where that is refused; those of the
///         engine and of the sink; kInterrupted, kPressure.
Status stream_engine(const EnginePlan& plan, const Binding& binding,
                     const EngineStreamParts& parts);

}  // namespace lode::loader
