#pragma once

#include <cstdint>
#include <span>

#include "lode/ops/rows.h"
#include "lode/tensor/tensor.h"

namespace lode::ops {

/// out[i] = row ids[i] of the table, exactly. Ids must be below the table's rows.
///
/// Shapes: table [V, H], row-major in f32, f16 or bf16, or in panels; ids [num_rows]; out.k = H.
void embed(const Compute& compute, const tensor::TensorView& table,
           std::span<const std::int32_t> ids, const Rows& out) noexcept;

}  // namespace lode::ops
