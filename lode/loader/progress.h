#pragma once

#include <atomic>
#include <cstdint>

namespace lode::loader {

/// What a running load tells, and how it is stopped: written by the load, read by whoever likes,
/// whenever. A signal handler may set `cancel`.
struct Progress {
  std::atomic<std::uint64_t> finished_bytes = 0;  // of the slabs, padding included
  std::atomic<std::uint64_t> total_bytes = 0;     // LoadPlan::weight_bytes()
  std::atomic<std::uint32_t> stage_idx = 0;  // LoadPlan::stages[stage_idx].name; or its size: seal
  std::atomic<bool> cancel = false;
  std::atomic<bool> negative_scales = false;  // seen so far among the block scales
};

}  // namespace lode::loader
