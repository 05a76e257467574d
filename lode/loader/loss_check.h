#pragma once

#include <string_view>

#include "lode/base/result.h"
#include "lode/targets/losses.h"

namespace lode::loader {

/// Refuses what a tensor of an engine would lose of an expert, as targets::Refusal says.
///
/// Errors: kCheckFailed naming the tensor, the count and what it is of, to who is strict;
///         kInvalidSource where nothing of use would be left.
Status check_losses(const targets::LossCounts& counts, std::string_view tensor, bool is_strict);

}  // namespace lode::loader
