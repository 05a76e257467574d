#include "lode/moe/align.h"

#include <algorithm>
#include <cstddef>

namespace lode::moe {

void order_by_expert(std::span<const std::int32_t> ids, const ExpertOrder& out) noexcept {
  const std::size_t num_experts = out.first.size() - 1;
  const auto valid = [num_experts](std::int32_t id) {
    return id >= 0 && static_cast<std::size_t>(id) < num_experts;
  };
  std::fill(out.first.begin(), out.first.end(), 0U);
  for (const std::int32_t id : ids) {
    if (valid(id)) ++out.first[static_cast<std::size_t>(id) + 1];
  }
  for (std::size_t expert = 0; expert < num_experts; ++expert) {
    out.first[expert + 1] += out.first[expert];
  }
  // Place each, moving the starts to the ends; then the ends are the next expert's starts.
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!valid(ids[i])) continue;
    out.order[out.first[static_cast<std::size_t>(ids[i])]++] = static_cast<std::uint32_t>(i);
  }
  for (std::size_t expert = num_experts; expert > 0; --expert) {
    out.first[expert] = out.first[expert - 1];
  }
  out.first[0] = 0;
}

}  // namespace lode::moe
