#pragma once

#include <cstddef>
#include <span>

#include "lode/base/result.h"
#include "lode/loader/operation.h"

namespace lode::loader {

/// What an operation met that people may want to know of.
struct Met {
  bool negative_scales = false;
};

/// Takes one operation's bytes out of its slot to their final place. Pure but for the bytes it
/// writes; writes only its own.
///
/// Shapes:  slot [the load's reads]; tensor [target.bytes].
/// Errors:  kInvalidSource naming role, expert and place of a scale that is NaN or infinite, of a
///          matrix scale that is not a finite number above zero, or of a number that is not finite
///          where int8 is to be made of it.
Result<Met> transform(const Operation& operation, std::span<const std::byte> slot,
                      std::span<std::byte> tensor);

}  // namespace lode::loader
