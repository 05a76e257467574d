#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lode::parallel {

/// How many threads can really run at once: the CPUs of this process's affinity mask, but no more
/// than its control group's share of time (rounded up). At least 1.
std::size_t hardware_threads();

/// The CPUs' worth of time that the control groups grant, the tightest of the process's own group
/// and its parents, versions 1 and 2; nothing where none is set. `root` stands before /proc and
/// /sys, for tests.
std::optional<std::size_t> cgroup_cpus(const std::string& root);

/// "200000 100000" (cpu.max: quota and period in us) to 2; fractions round up; nothing for "max",
/// a negative quota or anything else.
std::optional<std::size_t> cpus_of_quota(std::string_view quota_and_period) noexcept;

}  // namespace lode::parallel
