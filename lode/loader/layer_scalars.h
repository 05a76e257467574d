#pragma once

#include "lode/base/result.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/expert_reader.h"

namespace lode::loader {

/// Reads what a preparer must know of a layer before its first tensor: scales of matrices and of
/// activations, and where it asks for them the largest block scales.
///
/// Errors: kInvalidSource naming the expert and the matrix for a scale that is not finite or not
///         above zero, and the experts whose input scales are missing where they are wanted; those
///         of the engine.
Result<targets::LayerScalars> read_layer_scalars(const std::vector<ExpertSource>& experts,
                                                 const EngineBankPlan& bank, io::ReadEngine& engine,
                                                 ExpertReader& reader);

}  // namespace lode::loader
