#include "lode/comm/first_other.h"

#include <algorithm>
#include <span>
#include <vector>

namespace lode::comm {

Result<std::optional<std::size_t>> first_other(Group& group, std::uint32_t number) {
  std::vector<std::uint32_t> all(group.size());
  LODE_TRY_STATUS(group.all_gather(std::as_bytes(std::span(&number, 1)),
                                   std::as_writable_bytes(std::span(all))));
  const auto other = std::ranges::find_if(all, [&](std::uint32_t one) { return one != all[0]; });
  if (other == all.end()) return std::optional<std::size_t>();
  return std::optional(static_cast<std::size_t>(other - all.begin()));
}

}  // namespace lode::comm
