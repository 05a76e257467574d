#include "lode/engine/load_recorder.h"

namespace lode::engine {

LoadRecorder::LoadRecorder(const families::ModelSpec& spec)
    : layers_(spec.num_layers),
      experts_(spec.router.num_experts),
      counts_(layers_ * experts_),
      last_layer_(spec.num_layers) {}

void LoadRecorder::routes(std::uint32_t layer, std::span<const ops::RowPlace>,
                          std::span<const std::int32_t> ids, std::span<const float>) noexcept {
  if (layer <= last_layer_) ++passes_;  // the first layer with experts, again
  last_layer_ = layer;
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= experts_) continue;
    ++counts_[layer * experts_ + static_cast<std::size_t>(id)];
  }
}

BalanceLoads LoadRecorder::loads() const {
  BalanceLoads loads{.layers = layers_,
                     .experts = experts_,
                     .steps = static_cast<double>(passes_ == 0 ? 1 : passes_)};
  for (const std::uint64_t count : counts_) loads.loads.push_back(static_cast<float>(count));
  return loads;
}

}  // namespace lode::engine
