#pragma once

#include <filesystem>

#include "lode/base/result.h"

namespace lode::cli {

/// Shows what an export is: for whom, which experts, of which checkpoint, and its tensors.
/// Errors: those of read_export; kInvalidSource for one that was begun and is not finished, and for
///         damaged files.
Status inspect_export(const std::filesystem::path& folder, bool json);

}  // namespace lode::cli
