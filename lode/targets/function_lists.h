#pragma once

#include <array>
#include <span>

#include "lode/targets/functions.h"

// The lists of named transforms, every domain in a file functions_<domain>.cc; only targets/
// includes this.

namespace lode::targets {

// One line a domain here, in the order of the documents,

// and its name here.
inline constexpr std::array<std::span<const Function> (*)() noexcept, 0> kFunctionLists{};

}  // namespace lode::targets
