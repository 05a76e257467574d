#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::memory {

/// One memory cgroup that confines this process, or an ancestor of it.
struct CgroupMemory {
  std::string path;
  std::uint64_t limit_bytes = 0;
  std::uint64_t used_bytes = 0;  // pages that can be dropped at once not counted
  std::uint64_t num_kills = 0;   // by the kernel for this limit, since the group was made
  friend bool operator==(const CgroupMemory&, const CgroupMemory&) = default;
};

/// What the system says about memory now.
struct MachineMemory {
  std::uint64_t total_bytes = 0;      // MemTotal
  std::uint64_t available_bytes = 0;  // MemAvailable
  std::vector<CgroupMemory> cgroups;  // only those with a limit
  // Of what the cgroups use, this process's own, which plans count as the program's; known only
  // where it is alone in its group.
  std::uint64_t own_bytes = 0;
};

/// The number of bytes that a run may hold, and where the number comes from.
struct Budget {
  std::uint64_t limit_bytes = 0;
  std::uint64_t floor_bytes =
      0;                // left to the rest of the machine; 0 where the user named a number
  std::string source;   // "--memory", "MemAvailable", "cgroup /docker/…"
  std::string warning;  // empty, or what the user should know
};

/// The decision, pure. With `wanted_bytes` that number, unless less is available: then what is
/// available, with a warning. Without: what is available less a floor, which is a twentieth of the
/// machine (or of the cgroup), at least 256 MiB and at most 6 GiB, but never more than half.
Budget decide_budget(const MachineMemory& machine, std::optional<std::uint64_t> wanted_bytes);

/// Reads /proc/meminfo and the limits of this process's memory cgroups, version 1 and 2; below
/// `root`, a test's stand-in for "/".
/// Errors: kIo if /proc/meminfo cannot be read or lacks its lines.
Result<MachineMemory> read_machine_memory(const std::string& root = "");

// The parsers, for tests. `meminfo` is the text of /proc/meminfo; a limit that means "none" in
// either version of cgroups gives nothing.
/// Errors: kIo if a line is missing.
Result<MachineMemory> parse_meminfo(std::string_view meminfo);
std::optional<std::uint64_t> parse_cgroup_limit(std::string_view text);
/// From the text of /proc/self/cgroup: the folders to ask, innermost first.
struct CgroupFolder {
  std::string path;
  bool version_2 = true;
  friend bool operator==(const CgroupFolder&, const CgroupFolder&) = default;
};
std::vector<CgroupFolder> memory_cgroup_folders(std::string_view proc_self_cgroup);

}  // namespace lode::memory
