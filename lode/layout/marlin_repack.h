#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lode/layout/marlin_scales.h"
#include "lode/layout/marlin_weights.h"
#include "lode/parallel/thread_pool.h"
#include "lode/tensor/tensor.h"

namespace lode::layout {

//   A matrix becomes Marlin tiles where it lies, in two steps (tile T(k, r) of k tile k, row tile
//   r):
//
//     64 rows        ->  T(0,0) T(1,0) T(2,0) ...     each group of rows by itself, through a copy
//     64 rows        ->  T(0,1) T(1,1) T(2,1) ...     of it in the scratch
//
//     T(0,0) T(1,0) T(2,0) T(0,1) T(1,1) T(2,1)   ->  T(0,0) T(0,1) T(1,0) T(1,1) T(2,0) T(2,1)
//                                                     whole tiles, in cycles: each moves once
//
// Padding: none: bytes out are bytes in.
// Source: weight_layouts 1.2 (bytes out = bytes in), 4.4 (the engines hold a second W13 and W2).

/// Weights of all experts of a layer with their block scales, which must move together. The scale
/// may be empty, or of more than a byte a number; then it is somebody else's.
///
/// Shapes: weight [E, rows, k] in a format of 4 or 8 bits, scale [E, rows, groups] of one byte.
struct MarlinTensors {
  tensor::Tensor weight;
  tensor::Tensor scale;
};

/// What is asked for.
struct MarlinForm {
  bool narrow_activations = false;
  MarlinScaleOrder scale_columns;
  ByteTable scale_table{};  // what becomes of the scales' bytes
};

/// What `run` will do, checked. Made only by `plan_marlin_repack`.
struct MarlinRepack {
  MarlinLayout weights;
  MarlinLayout column;  // of 64 rows
  MarlinForm form;
  std::uint64_t num_experts = 0;
  std::uint64_t groups = 0;                 // of scales; 0 for none
  std::uint64_t scratch_bytes = 0;          // of a thread: the least that `run` takes
  std::vector<std::uint32_t> cycle_begins;  // one tile of each cycle of two or more
};

/// Checks that the tensors can become Marlin tiles where they lie.
///
/// Shapes: as MarlinTensors.
/// Memory: 4 bytes a cycle; `run` takes 7 KiB of stack a thread beside its scratch, which is what
///         the rows of one tile take, or the scales of one expert: far less than an expert.
/// Errors: kInvalidSource for a weight that is missing or misshapen, or a scale that does not
///         belong to it; kUnsupported for sizes that tiles do not have.
Result<MarlinRepack> plan_marlin_repack(const MarlinTensors& tensors, const MarlinForm& form);

/// Carries out the repack on the tensors that it was made for, and hands them back. Cannot fail;
/// the same bytes for any scratch of at least scratch_bytes and any number of threads. As many
/// threads work as the scratch has room for. Every byte moves twice; through a copy of a whole
/// expert it was no faster.
///
/// Shapes: as planned; then weight as int32 [E, k/16, rows * bits / 2] and scale [E, groups, rows].
MarlinTensors run(const MarlinRepack& repack, MarlinTensors&& tensors, std::span<std::byte> scratch,
                  parallel::ThreadPool* pool = nullptr) noexcept;

}  // namespace lode::layout
