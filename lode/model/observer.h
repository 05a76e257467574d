#pragma once

#include <cstdint>
#include <span>

#include "lode/ops/attention.h"
#include "lode/ops/rows.h"

namespace lode::model {

/// Looks on while a model computes. Called between layers, on the calling thread; what it is shown
/// is valid during the call only.
class Observer {
 public:
  virtual ~Observer() = default;

  /// The residual stream: index 0 is the embedding, index i what layer i - 1 made of it; the last
  /// is before the final norm.
  ///
  /// Shapes: places [num_rows]; rows [at least num_rows][H].
  virtual void hidden(std::uint32_t index, std::span<const ops::RowPlace> places,
                      const ops::Rows& rows) noexcept = 0;

  /// What the router of a layer chose, by falling selection score.
  ///
  /// Shapes: ids, weights [num_rows][top_k].
  virtual void routes(std::uint32_t layer, std::span<const ops::RowPlace> places,
                      std::span<const std::int32_t> ids,
                      std::span<const float> weights) noexcept = 0;
};

}  // namespace lode::model
