#pragma once

#include <span>

#include "lode/targets/target.h"

// The ways to each group of targets, every group in a file of its name; only targets/ includes
// this.

namespace lode::targets {

std::span<const Route> deepgemm_routes() noexcept;
std::span<const Route> marlin_routes() noexcept;
std::span<const Route> cutlass_routes() noexcept;
std::span<const Route> trtllm_routes() noexcept;

}  // namespace lode::targets
