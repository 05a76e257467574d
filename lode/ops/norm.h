#pragma once

#include <cstddef>
#include <span>

#include "lode/ops/rows.h"

namespace lode::ops {

/// The numbers of an RMS norm: x * rsqrt(mean(x^2) + eps) * weight.
struct Norm {
  std::span<const float> weight;
  float eps = 0.0F;
};

/// out[row] = norm(x[row]) for rows [0, num_rows), and out's int8 forms.
///
/// Shapes: x and out [num_rows][k]; norm.weight [k].
void rms_norm_rows(const Compute& compute, const Norm& norm, const Rows& x, const Rows& out,
                   std::size_t num_rows, Forms forms) noexcept;

/// Each head of `heads` ([n * head width], head width = length of the weight) in place.
void rms_norm_heads(const Compute& compute, const Norm& norm, std::span<float> heads) noexcept;

}  // namespace lode::ops
