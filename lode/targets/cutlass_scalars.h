#pragma once

#include <vector>

#include "lode/targets/cutlass_layer.h"

namespace lode::targets {

/// The single numbers of a layer in that form, each a tensor [E] of F32; those that are made of
/// input scales only where the checkpoint has them.
/// Source: weight_layouts 2.5, 2.9.
std::vector<Part> scalar_parts(const ExpertsShape& shape, const LayerForm& form);

}  // namespace lode::targets
