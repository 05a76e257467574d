#pragma once

#include <cstdint>
#include <span>

#include "lode/families/model_spec.h"
#include "lode/loader/weight_set.h"
#include "lode/moe/runner.h"
#include "lode/ops/attention.h"
#include "lode/ops/norm.h"

namespace lode::model {

/// One layer's weights as the pass wants them. Views of the WeightSet.
struct LayerWeights {
  ops::Norm attention_norm;
  ops::Norm query_norm;  // empty weight where the model has none
  ops::Norm key_norm;
  ops::Norm mlp_norm;
  ops::Matrix query;
  ops::Matrix key;
  ops::Matrix value;
  ops::Matrix output;
  std::span<const float> query_bias;
  std::span<const float> key_bias;
  std::span<const float> value_bias;
  std::span<const float> output_bias;
  ops::AttentionShape attention;
  bool is_moe = true;
  moe::MoeLayer moe;      // where is_moe
  moe::DenseLayer dense;  // elsewhere
};

/// Aborts where the weights are not those of the spec: the loader has checked what files hold. Of a
/// rank of several the bank is that of its slots.
LayerWeights layer_weights(const families::ModelSpec& spec, const loader::WeightSet& weights,
                           std::uint32_t layer, std::uint64_t num_records);

}  // namespace lode::model
