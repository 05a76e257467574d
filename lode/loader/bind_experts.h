#pragma once

#include <cstdint>
#include <vector>

#include "lode/base/result.h"
#include "lode/loader/bind_context.h"
#include "lode/loader/binding.h"

namespace lode::loader {

/// Finds the routed experts of a layer, whichever way the file keeps them: each by its own name,
/// gate and up fused into one stack of all experts, or three stacks.
///
/// Errors: as bind(); kInvalidSource where the file has them in two of these ways.
Result<std::vector<ExpertSource>> bind_experts(BindContext& context, std::uint32_t layer);

}  // namespace lode::loader
