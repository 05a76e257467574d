#pragma once

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/expert_reader.h"
#include "lode/parallel/thread_pool.h"

namespace lode::loader {

/// By whom a layer is read. Borrows.
struct LayerReading {
  io::ReadEngine& engine;
  ExpertReader& reader;
  parallel::ThreadPool& pool;
  const checkpoint::TensorIndex* index = nullptr;  // names what is refused, if there is one
};

/// Reads what a preparer must know of a layer before its first tensor: scales of matrices and of
/// activations, and where it asks for them the largest block scales.
///
/// Errors: kInvalidSource naming the expert and the matrix for a scale that is not finite or not
///         above zero, for an input scale whose reciprocal is not finite, and the experts whose
///         input scales are missing where they are wanted; those of the engine.
Result<targets::LayerScalars> read_layer_scalars(const std::vector<ExpertSource>& experts,
                                                 const EngineBankPlan& bank,
                                                 const LayerReading& reading);

/// Whether a second-level scale of FP4, as a multiplier, makes weights of a usual size: producers
/// write the largest weight / (6 * 448), so one above 1 is a divisor taken for a multiplier or the
/// other way round.
/// Source: weight_layouts 2.5; field report 48.
constexpr bool is_plausible(float multiplier) noexcept { return multiplier <= 1.0F; }

}  // namespace lode::loader
