#include "lode/moe/block_align.h"

#include <algorithm>

#include "lode/base/bytes.h"

namespace lode::moe {
namespace {

/// The number that a pair counts under; below 0 where it takes no part.
std::int32_t expert_of(const BlockShape& shape, std::int32_t id) noexcept {
  const auto known = [&](std::int32_t e) {
    return e >= 0 && static_cast<std::uint32_t>(e) < shape.num_experts;
  };
  if (!known(id)) return -1;
  if (!shape.ignore_invalid || shape.expert_map.empty()) return id;
  const std::int32_t local = shape.expert_map[static_cast<std::size_t>(id)];
  return known(local) ? local : -1;
}

/// What a block of such pairs is called in the end.
std::int32_t name_of(const BlockShape& shape, std::size_t expert) noexcept {
  const bool translate = !shape.ignore_invalid && !shape.expert_map.empty();
  return translate ? shape.expert_map[expert] : static_cast<std::int32_t>(expert);
}

}  // namespace

std::size_t block_capacity(const BlockShape& shape, std::size_t num_pairs) noexcept {
  const std::size_t block = shape.block;
  std::size_t capacity = num_pairs + shape.num_experts * (block - 1);
  if (shape.pad_sorted_ids) capacity = align_up(capacity, block);
  return num_pairs < shape.num_experts ? std::min(num_pairs * block, capacity) : capacity;
}

std::size_t align_blocks(const BlockShape& shape, std::span<const std::int32_t> ids,
                         std::span<std::uint32_t> first, const BlockOrder& out) noexcept {
  std::fill(out.sorted_ids.begin(), out.sorted_ids.end(), static_cast<std::int32_t>(ids.size()));
  std::fill(out.expert_ids.begin(), out.expert_ids.end(), -1);
  std::fill(first.begin(), first.end(), 0U);
  for (const std::int32_t id : ids) {
    const std::int32_t expert = expert_of(shape, id);
    if (expert >= 0) ++first[static_cast<std::size_t>(expert)];
  }
  std::uint32_t used = 0;
  for (std::size_t expert = 0; expert < shape.num_experts; ++expert) {
    const std::uint32_t end = used + align_up(first[expert], shape.block);
    first[expert] = used;
    for (; used < end; used += shape.block) {
      out.expert_ids[used / shape.block] = name_of(shape, expert);
    }
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t expert = expert_of(shape, ids[i]);
    if (expert < 0) continue;
    out.sorted_ids[first[static_cast<std::size_t>(expert)]++] = static_cast<std::int32_t>(i);
  }
  return used;
}

}  // namespace lode::moe
