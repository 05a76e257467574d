#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lode/loader/engine_plan.h"

namespace lode::engine {

/// One layer's experts in bytes, as what an engine's own preparation makes of them.
struct LayerWeights {
  std::uint64_t num_experts = 0;
  std::uint64_t gate_up_bytes = 0;        // W13: all experts' weights, padding included
  std::uint64_t down_bytes = 0;           // W2
  std::uint64_t gate_up_scale_bytes = 0;  // S13: block scales
  std::uint64_t down_scale_bytes = 0;     // S2
  std::uint64_t unquantised_bytes = 0;    // of both in 16 bits, where they are quantised on the way
  bool gated = true;
};

LayerWeights layer_weights(const loader::EngineBankPlan& bank, const loader::EngineChoice& choice);

/// One way in which engines bring a layer into the form of a target.
struct EngineWay {
  std::string_view name{};        // "list and concatenate"
  std::string_view when{};        // "before vLLM #47851"; empty: as they do today
  std::string_view formula{};     // "max(2*W13, W13+2*W2)"
  std::uint64_t extra_bytes = 0;  // beside the layer itself, at worst
};

/// The ways that are known for experts of `from` (Route::from, or the name of an online scheme), an
/// older one before the one that took its place. Where a formula says "at least", what else the way
/// takes is not known.
///
/// Source: weight_layouts 4.4, 4.5, 2.4, 2.6, 2.9.
std::vector<EngineWay> engine_ways(targets::Target target, std::string_view from,
                                   const LayerWeights& weights);

/// Route::from of what the bank is made of, or the name of the online scheme.
std::string_view route_from(const loader::EngineBankPlan& bank, const loader::EngineChoice& choice);

}  // namespace lode::engine
