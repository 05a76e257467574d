#pragma once

#include "lode/loader/slicing.h"

namespace lode::loader {

/// What a group writes: bytes of one slab, from the first to the last.
struct Reach {
  Slab slab = Slab::kDense;
  std::uint64_t begin_bytes = 0;
  std::uint64_t end_bytes = 0;
  bool completes = true;  // nothing after this group will write there: the last k of its rows
};

Reach reach_of(const Group& group);

}  // namespace lode::loader
