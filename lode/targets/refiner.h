#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/experts.h"

namespace lode::targets {

/// What is refined: an expert for a tensor, of the window that is in memory.
struct RefineRequest {
  std::size_t tensor_idx = 0;
  std::uint64_t expert_idx = 0;  // of this rank
  SourceWindow window{};
  const ExpertSource& source;
  const LayerScalars& scalars;
  bool scales_are_known = false;  // the memory has those of the whole expert already
};

/// What becomes of an expert before tensors are made of it: 16-bit weights that are quantised on
/// the way. Whoever streams experts calls `measure` for each before the first tensor, and then
/// `end_measure`, where that is wanted, and hands `Preparer::make` what `refine` gives instead of
/// the source.
///
/// An expert that is too large comes in windows, each by itself. Its scales are kept as a whole: a
/// tensor that is made of scales, or of numbers under a scale of the whole row, has `refine_scales`
/// see all rows first.
class Refiner {
 public:
  virtual ~Refiner() = default;

  /// Memory that is filled for a window of a tensor.
  virtual std::uint64_t bytes(std::size_t tensor_idx,
                              const SourceWindow& window) const noexcept = 0;
  /// Whether all rows must go through `refine_scales` before a window can be refined.
  virtual bool wants_scales_first(std::size_t tensor_idx,
                                  const SourceWindow& window) const noexcept = 0;
  /// Rows of windows are multiples of this.
  virtual std::uint64_t window_rows() const noexcept = 0;

  /// Whether every expert must be measured, gate, up and down, before the first tensor.
  virtual bool wants_measure() const noexcept = 0;
  /// Adds to the scalars what follows from expert `expert_idx` (of this rank), or from a part of
  /// it.
  ///
  /// Errors: kInvalidSource naming the matrices for numbers that are not finite.
  virtual Status measure(std::uint64_t expert_idx, const ExpertSource& source,
                         LayerScalars& scalars, parallel::ThreadPool* pool) const = 0;
  /// What follows from all of them.
  virtual void end_measure(LayerScalars& scalars) const = 0;

  /// The scales of some whole rows, to where they are kept in `memory`.
  ///
  /// Shapes: memory [bytes()] of the window that will be refined; the request's has all of k.
  /// Errors: as `refine`.
  virtual Status refine_scales(const RefineRequest& request, std::span<std::byte> memory,
                               parallel::ThreadPool* pool) const = 0;
  /// The expert as the tensor is made of it; lies in `memory`, and what is left as it is in the
  /// source. The same bytes for any number of threads, and for any windows.
  ///
  /// Shapes: memory [bytes()].
  /// Errors: kInvalidSource naming the matrices for numbers that are not finite.
  virtual Result<ExpertSource> refine(const RefineRequest& request, std::span<std::byte> memory,
                                      parallel::ThreadPool* pool) const = 0;
};

}  // namespace lode::targets
