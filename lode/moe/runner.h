#pragma once

#include <cstddef>

#include "lode/moe/moe_layer.h"
#include "lode/moe/routing.h"
#include "lode/moe/unrouted.h"

namespace lode::moe {

/// The experts that were chosen: sums += the weighted experts of x, each row's by rising id. Takes
/// chunk_rows rows at a time, on which no bit depends.
///
/// Shapes: sums as x.
void run_routed(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                const MoeScratch& scratch, const ops::Rows& sums) noexcept;

/// The whole layer: route_rows, run_routed, run_unrouted. A row's result depends on that row and
/// the weights alone.
///
/// Shapes: x [num_rows][H] with its int8 forms; sums [num_rows][H].
void run_moe(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
             const MoeScratch& scratch, const ops::Rows& sums) noexcept;
void run_moe(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
             std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept;

/// A layer with one MLP for every row. A view of weights.
struct DenseLayer {
  GatedMlp mlp;
  GatedActivation activation;
};

/// The same for it: every row goes to the one MLP, with weight 1.
///
/// Shapes: as run_moe; inner [num_rows][I].
void run_dense(const ops::Compute& compute, const DenseLayer& layer, const ops::Rows& x,
               std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept;

}  // namespace lode::moe
