#pragma once

#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/loader/bind_context.h"

namespace lode::loader {

/// Every tensor that no role has taken must match a rule of the list of what may be ignored.
/// Returns one line a rule that did: "*.input_scale: 28 tensors (…)".
///
/// Errors: kInvalidSource naming a tensor that no rule lets pass; kUnsupported naming one that
/// changes what the model computes in a way that Lode does not know.
Result<std::vector<std::string>> account_for_leftovers(const BindContext& context);

}  // namespace lode::loader
