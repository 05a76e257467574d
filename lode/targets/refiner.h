#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/experts.h"

namespace lode::targets {

/// What becomes of an expert before tensors are made of it: 16-bit weights that are quantised on
/// the way. Whoever streams experts calls `measure` for each before the first tensor, where it is
/// wanted, and hands `Preparer::make` what `refine` gives instead of the source.
class Refiner {
 public:
  virtual ~Refiner() = default;

  /// Memory that `refine` fills with one expert.
  virtual std::uint64_t bytes() const noexcept = 0;

  /// Whether every expert must be measured, gate, up and down, before the first tensor.
  virtual bool wants_measure() const noexcept = 0;
  /// Adds to the scalars what follows from expert `expert_idx` (of this rank).
  ///
  /// Errors: kInvalidSource naming the matrices for numbers that are not finite.
  virtual Status measure(std::uint64_t expert_idx, const ExpertSource& source,
                         LayerScalars& scalars) const = 0;

  /// The expert as tensor `tensor_idx` is made of it; lies in `memory`, and what is left as it is
  /// in the source. The same bytes for any number of threads.
  ///
  /// Shapes: memory [bytes()].
  /// Errors: kInvalidSource naming the matrices for numbers that are not finite.
  virtual Result<ExpertSource> refine(std::size_t tensor_idx, const ExpertSource& source,
                                      std::span<std::byte> memory,
                                      parallel::ThreadPool* pool) const = 0;
};

}  // namespace lode::targets
