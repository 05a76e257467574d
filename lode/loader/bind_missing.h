#pragma once

#include <string>

#include "lode/base/result.h"
#include "lode/loader/bind_context.h"

namespace lode::loader {

/// A weight that is not there: "tensor N: want W, found none of this name; nearest is M". M is the
/// name most like it among those that have no role of their own, nearest of kin first: the same
/// expert, the same layer, the whole checkpoint.
Error missing(const BindContext& context, const std::string& name, std::string wanted);

}  // namespace lode::loader
