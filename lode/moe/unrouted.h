#pragma once

#include "lode/moe/moe_layer.h"

namespace lode::moe {

/// What a token gets beside its routed experts, to be added once and after them: the token itself
/// times its zero experts' weights, then the shared expert.
///
/// Shapes: sums as x.
void run_unrouted(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                  const MoeScratch& scratch, const ops::Rows& sums) noexcept;

}  // namespace lode::moe
