#include "lode/comm/node_numbers.h"

#include <algorithm>

namespace lode::comm {

std::vector<std::size_t> number_nodes(std::span<const int> lowest) {
  std::vector<int> nodes(lowest.begin(), lowest.end());
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::vector<std::size_t> node_of;
  for (const int one : lowest) {
    const auto at = std::lower_bound(nodes.begin(), nodes.end(), one);
    node_of.push_back(static_cast<std::size_t>(at - nodes.begin()));
  }
  return node_of;
}

}  // namespace lode::comm
