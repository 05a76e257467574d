#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "lode/placement/expert_times.h"

namespace lode::moe {

/// What a rank notes of the experts of one layer while it runs, where somebody asks for it.
struct LayerWatch {
  /// How often each expert was chosen by the rows that this rank owns; added to. Logical ids, so
  /// that no map changes what a count means. Shapes:  [experts].
  std::span<std::uint32_t> chosen;
  std::uint64_t rows = 0;                  // that experts of this rank computed
  std::chrono::nanoseconds computing{0};   // them
  std::chrono::nanoseconds exchanging{0};  // rows and products: mostly waiting for other ranks
  placement::ExpertTimes times;            // of the computing
};

}  // namespace lode::moe
