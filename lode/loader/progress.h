#pragma once

#include <atomic>
#include <cstdint>

#include "lode/base/result.h"

namespace lode::loader {

/// What a running load tells, and how it is stopped: written by the load, read by whoever likes,
/// whenever. A signal handler may set `cancel`.
struct Progress {
  std::atomic<std::uint64_t> finished_bytes = 0;  // of the slabs, padding included
  std::atomic<std::uint64_t> read_bytes = 0;      // of the files, as asked for
  std::atomic<std::uint64_t> total_bytes = 0;     // LoadPlan::weight_bytes(); what a stream gives
  std::atomic<std::uint32_t> stage_idx = 0;   // LoadPlan::stages[stage_idx].name; or its size: seal
  std::atomic<bool> cancel = false;           // stop: the user said so
  std::atomic<bool> pressed = false;          // stop: the machine runs out of memory
  std::atomic<bool> negative_scales = false;  // seen so far among the block scales
};

/// Whether the load has not been told to stop.
/// Errors: kInterrupted, kPressure.
inline Status check_may_go_on(const Progress& progress) {
  constexpr const char* kThing = "loading the weights";
  if (progress.cancel.load(std::memory_order_relaxed)) {
    return Error{.code = Code::kInterrupted, .thing = kThing, .found = "stopped"};
  }
  if (progress.pressed.load(std::memory_order_relaxed)) {
    return Error{.code = Code::kPressure, .thing = kThing, .found = "stopped"};
  }
  return {};
}

}  // namespace lode::loader
