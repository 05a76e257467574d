#pragma once

#include <cstddef>

#include "lode/moe/moe_layer.h"

namespace lode::moe {

/// Floats of a thread's tile that the router needs.
std::size_t router_tile_floats(const families::RouterSpec& spec);

/// logits = x W^T + bias in f32 in every mode: a wrong choice costs more than the product.
///
/// Shapes: scratch.logits [rows][C].
void router_logits(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                   const MoeScratch& scratch) noexcept;

/// The choice: ids, weights, zero_weights and `unsure` of the rows, from their logits.
void choose_experts(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                    const MoeScratch& scratch) noexcept;

/// Logits and choice.
void route_rows(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                const MoeScratch& scratch) noexcept;
/// The same for rows none of which is padding.
///
/// Shapes: x [num_rows][H].
void route_rows(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
                std::size_t num_rows, const MoeScratch& scratch) noexcept;

}  // namespace lode::moe
