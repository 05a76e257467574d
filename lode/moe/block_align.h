#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/moe/align.h"

namespace lode::moe {

/// How a routing is laid into blocks of one expert each, as tile kernels of other engines take it
/// ("moe_align_block_size"). Lode's own experts run on an ExpertOrder, without padding.
struct BlockShape {
  std::uint32_t block = 1;                   // pairs of a block
  std::uint32_t num_experts = 0;             // of all ranks, in the numbering of the ids
  std::span<const std::int32_t> expert_map;  // [num_experts]: local id or -1; empty: all are local
  bool ignore_invalid = false;               // blocks of local experts only, not of foreign ones
  bool pad_sorted_ids = false;               // room up to a whole block
};

/// Pairs that there is room for: enough for any routing of `num_pairs` pairs.
std::size_t block_capacity(const BlockShape& shape, std::size_t num_pairs) noexcept;

/// A view, filled by align_blocks.
///
/// Shapes: sorted_ids [block_capacity]; expert_ids [ceil(block_capacity / block)].
struct BlockOrder {
  std::span<std::int32_t> sorted_ids;  // numbers of pairs, rising within an expert; num_pairs: none
  std::span<std::int32_t> expert_ids;  // of each block; local with an expert_map, -1 beyond `used`
};

/// Fills `out` and gives the pairs in use, a multiple of `block`. Ids below 0 or beyond the experts
/// are dropped before any use as an index, and so are local ids beyond them.
///
/// Shapes: ids [num_pairs], fewer than 2^31; first [num_experts + 1] of scratch.
/// Source: spec moe_runner_eplb 2.1, 2.2.
std::size_t align_blocks(const BlockShape& shape, std::span<const std::int32_t> ids,
                         std::span<std::uint32_t> first, const BlockOrder& out) noexcept;

}  // namespace lode::moe
