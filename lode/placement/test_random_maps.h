#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "lode/placement/shape.h"

namespace lode::placement {

/// For tests only: sizes of a layer, and maps of them that hold every expert.
struct RandomShape {
  std::size_t experts = 1;
  Shape shape;
};

inline RandomShape random_shape() {
  const std::size_t nodes = *rc::gen::inRange<std::size_t>(1, 4);
  const std::size_t groups = nodes * *rc::gen::inRange<std::size_t>(1, 4);
  const std::size_t experts = groups * *rc::gen::inRange<std::size_t>(1, 6);
  const std::size_t ranks = nodes * *rc::gen::inRange<std::size_t>(1, 5);
  const std::size_t least = (experts + ranks - 1) / ranks;
  const std::size_t slots_per_rank = least + *rc::gen::inRange<std::size_t>(0, 4);
  return {experts,
          {.slots = slots_per_rank * ranks, .ranks = ranks, .nodes = nodes, .groups = groups}};
}

/// Every expert in a slot, anything in the others (also nothing, where `holes`), shuffled.
inline std::vector<std::int32_t> random_map(std::size_t experts, std::size_t slots, bool holes) {
  const auto most = static_cast<std::int32_t>(experts);
  std::vector<std::int32_t> map = *rc::gen::container<std::vector<std::int32_t>>(
      slots, rc::gen::inRange<std::int32_t>(holes ? -1 : 0, most));
  std::iota(map.begin(), map.begin() + most, 0);
  for (std::size_t i = slots; i > 1; --i)
    std::swap(map[i - 1], map[*rc::gen::inRange<std::size_t>(0, i)]);
  return map;
}

}  // namespace lode::placement
