#pragma once

#include <cstdint>
#include <span>

namespace lode::moe {

/// The (token, column) pairs of a routing, ordered by expert. A view of scratch.
///
/// Assignment i is token i / top_k, column i mod top_k. Expert e has the assignments
/// order[first[e]] .. order[first[e + 1] - 1], rising.
///
/// Shapes: first [num_experts + 1]; order [num_tokens * top_k], of which first[num_experts] used.
struct ExpertOrder {
  std::span<std::uint32_t> first;
  std::span<std::uint32_t> order;

  std::uint32_t count(std::size_t expert) const noexcept {
    return first[expert + 1] - first[expert];
  }
  std::uint32_t total() const noexcept { return first.back(); }
};

/// Stable counting sort. Ids below 0 or beyond the experts take no part, before any use as an
/// index.
///
/// Shapes: ids [num_tokens * top_k].
void order_by_expert(std::span<const std::int32_t> ids, const ExpertOrder& out) noexcept;

}  // namespace lode::moe
