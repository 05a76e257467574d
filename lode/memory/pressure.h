#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/memory/budget.h"

namespace lode::memory {

/// What the system said at one instant, and what a load still wanted then.
struct PressureSample {
  std::uint64_t at_us = 0;          // of any clock that only goes forward
  std::uint64_t to_come_bytes = 0;  // that the load has been promised and has not taken yet
  MachineMemory machine;
  std::optional<std::uint64_t> stalled_us;  // since boot; nothing where the kernel has no PSI
};

/// Below this much MemAvailable a load stops: a 256th of the machine, at least 32 MiB, at most
/// 512 MiB.
std::uint64_t pressure_floor_bytes(std::uint64_t total_bytes) noexcept;

/// The decision, pure: why a load has to stop, or nothing. `window` holds the last samples, oldest
/// first; about a second of them is enough.
///
/// A load stops when the kernel has killed in one of our control groups; when MemAvailable is below
/// the floor; when what is still to come has not fitted into what is free, neither of the machine
/// nor of a group, for 300 ms; or when, near the floor, everything waited for memory for a third
/// of the last second. It does not stop for what it no longer needs.
std::optional<std::string> pressure_seen(std::span<const PressureSample> window);

/// Asks /proc and the control groups, below `root` (a test's stand-in for "/").
/// Errors: those of read_machine_memory.
Result<PressureSample> read_pressure(const std::string& root = "");

/// For tests: the total of the line "full" of /proc/pressure/memory.
std::optional<std::uint64_t> parse_stalled_us(std::string_view text);

}  // namespace lode::memory
