#pragma once

#include <cstdint>
#include <vector>

#include "lode/engine/balance_files.h"
#include "lode/families/model_spec.h"
#include "lode/model/observer.h"

namespace lode::engine {

/// Counts which experts the routers choose, layer by layer and by their logical ids, so that no map
/// changes what a count means. Ids that are none are not counted.
/// Memory: a number an expert and layer.
class LoadRecorder final : public model::Observer {
 public:
  explicit LoadRecorder(const families::ModelSpec& spec);

  void hidden(std::uint32_t, std::span<const ops::RowPlace>, const ops::Rows&) noexcept override {}
  void routes(std::uint32_t layer, std::span<const ops::RowPlace> places,
              std::span<const std::int32_t> ids, std::span<const float> weights) noexcept override;

  /// What was counted; a step is a pass.
  BalanceLoads loads() const;

 private:
  std::size_t layers_;
  std::size_t experts_;
  std::vector<std::uint64_t> counts_;  // [layers][experts]
  std::uint64_t passes_ = 0;
  std::uint32_t last_layer_ = 0;
};

}  // namespace lode::engine
