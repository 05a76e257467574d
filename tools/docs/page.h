#pragma once

#include <string>
#include <string_view>

#include "lode/base/result.h"

namespace lode::docs {

/// The page with what stands between each pair of marks replaced by what the program prints:
///
///     <!-- lode-docs: NAME -->
///     ...
///     <!-- lode-docs end -->
///
/// Errors: kInvalidSource for a name that `prints()` does not have, or a mark without its end.
Result<std::string> filled(std::string_view page);

/// The first line in which two texts differ, as "line N: ...", for a message; empty if none.
std::string first_difference(std::string_view is, std::string_view should_be);

}  // namespace lode::docs
