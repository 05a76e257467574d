#pragma once

#include <span>

#include "lode/model/layer_weights.h"
#include "lode/model/scratch.h"

namespace lode::model {

/// The rows of one pass and where they stand. All spans lie in `scratch`.
struct Pass {
  const ops::Compute* compute = nullptr;
  const Scratch* scratch = nullptr;
  std::span<const ops::RowPlace> places;  // [rows]
  std::span<const ops::KvLayer> kv;       // [sequences], of the layer at hand

  std::size_t num_rows() const noexcept { return places.size(); }
};

/// hidden += attention(norm(hidden)); writes the rows' keys and values first.
void run_attention(const Pass& pass, const LayerWeights& layer) noexcept;

/// hidden += mlp(norm(hidden)), routed experts or one dense MLP; over ranks where `ranks` has a
/// group.
/// Errors: those of moe::exchange_experts and moe::gather_rows.
Status run_mlp(const Pass& pass, const LayerWeights& layer, const moe::ExpertRanks& ranks);

}  // namespace lode::model
