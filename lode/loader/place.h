#pragma once

#include <string>

#include "lode/loader/plan.h"

namespace lode::loader {

/// Gives every role of one stage outside the routed experts its place in the stage's slab.
///
/// Errors: as plan_load.
Status place_dense(const RoleSources& sources, DenseFormat dense, StagePlan& stage);

/// Plans the bank of one layer: all its experts, or those that `slots` (may be null) names.
///
/// Errors: as plan_load.
Status place_experts(const std::vector<ExpertSource>& experts,
                     const std::vector<std::uint32_t>* slots, StagePlan& stage);

/// Of the bank of a layer, which has all its experts, keeps those that `slots` names.
///
/// Errors: kUsage for an expert that the layer has not.
Status keep_slots(const std::vector<std::uint32_t>& slots, StagePlan& stage);

/// What a matrix becomes in panels.
formats::Encoding prepared_encoding(const formats::Encoding& stored, DenseFormat dense) noexcept;

}  // namespace lode::loader
