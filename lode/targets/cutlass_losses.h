#pragma once

#include "lode/targets/cutlass_part.h"
#include "lode/targets/losses.h"

namespace lode::targets {

/// What `make_part` loses: scales and numbers of gate and up under one scale, scales that take up
/// that of their matrix, scales that are raised.
bool part_may_lose(const Part& part) noexcept;
void count_part_losses(const Part& part, const ExpertsShape& shape, const LossRequest& request,
                       LossCounts& losses);

}  // namespace lode::targets
