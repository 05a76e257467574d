#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lode::comm {

/// Numbers machines from 0 by their lowest rank. `lowest[r]` is the lowest rank on rank r's
/// machine.
std::vector<std::size_t> number_nodes(std::span<const int> lowest);

}  // namespace lode::comm
