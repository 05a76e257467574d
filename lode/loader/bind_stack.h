#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/loader/bind_context.h"
#include "lode/loader/binding.h"

namespace lode::loader {

/// Modules of a layer's stacked experts.
struct StackNames {
  std::string gate_up;  // fused
  std::string gate;     // apart
  std::string up;
  std::string down;
};
StackNames stack_names(const BindContext& context, std::uint32_t layer);

/// Experts of stacks [E, ., .]: gate and up in one, or in two.
///
/// Errors: as bind().
Result<std::vector<ExpertSource>> bind_fused(BindContext& context, const StackNames& names);
Result<std::vector<ExpertSource>> bind_apart(BindContext& context, const StackNames& names);

}  // namespace lode::loader
