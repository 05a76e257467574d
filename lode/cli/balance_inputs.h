#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lode/engine/balance_files.h"

namespace lode::cli {

/// Of maps that a model is run with.
inline constexpr std::size_t kMaxMapBytes = std::size_t{64} << 20;

/// Loads and maps out of a file of at most `most_bytes`.
/// Errors: those of read_text_file, json::parse and engine::read_balance_loads or _maps, each with
///         the path.
Result<engine::BalanceLoads> read_loads_file(const std::string& path, std::size_t most_bytes);
Result<std::vector<placement::ExpertMap>> read_maps_file(const std::string& path,
                                                         std::size_t most_bytes);

}  // namespace lode::cli
