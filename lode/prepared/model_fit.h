#pragma once

#include <span>

#include "lode/base/result.h"
#include "lode/families/model_spec.h"
#include "lode/loader/plan.h"

namespace lode::prepared {

/// Whether stages out of an index are those of a model: every role that the spec has, in the form
/// that the forward pass reads, with the spec's extents; nothing else. An index that adds up by
/// itself may still belong to another config.json.
///
/// Errors: kInvalidSource naming role, layer, what was wanted and found.
Status check_model(std::span<const loader::StagePlan> stages, const families::ModelSpec& spec);

}  // namespace lode::prepared
