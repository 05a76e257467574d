#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/targets/target.h"

namespace lode::targets {

/// The preparer of BF16 or F16 experts that are quantised on the way, as `options.online` names it
/// ("fp8-tensor", "mxfp4", ...), and then prepared as the target prepares that encoding. Its
/// `refiner` must be used.
///
/// Gate and up of an expert share the scale of the matrix, where there is one. Engines round sizes
/// up to 128 where they quantise to blocks: so does this, with zeros.
///
/// Errors: kUsage for a name that is none; kUnsupported for experts that are not of 16 bits, rows
///         that the blocks do not divide, kernels that want activation scales which nobody has, and
///         as make_preparer.
/// Source: weight_layouts 3.5, 4.6.
Result<std::unique_ptr<Preparer>> make_online_preparer(Target target, const ExpertsShape& shape,
                                                       const Options& options);

/// The schemes by which such experts can go to the target, in the order of their table; none where
/// they are not of 16 bits.
std::vector<std::string_view> online_schemes_to(Target target, const ExpertsShape& shape);

}  // namespace lode::targets
