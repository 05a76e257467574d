#pragma once

#include <vector>

#include "lode/base/result.h"
#include "lode/families/model_spec.h"

namespace lode::model {

/// What turns a position into angles. Cosines themselves are made for the rows of a pass, so that
/// nothing grows with the context.
struct RopeTable {
  std::vector<float> frequencies;  // [rotary_dim / 2]; empty where the model has no rope
  float magnitude = 1.0F;          // multiplies cosines and sines
};

/// Errors: kUnsupported where the numbers make no table (odd width, yarn without a length).
/// Source: spec checkpoints_models 3.1; frequencies are made in double and rounded once.
Result<RopeTable> make_rope_table(const families::RopeSpec& spec);

}  // namespace lode::model
