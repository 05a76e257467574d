#include "lode/parallel/hardware_threads.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace lode::parallel {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::size_t affinity_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<std::size_t>(CPU_COUNT(&set));
  return std::thread::hardware_concurrency();  // a mask larger than cpu_set_t
}

/// A group of the process: its folder, and whether it is of version 2.
struct Group {
  std::string mount;
  std::string path;
  bool unified;
};

/// A line of /proc/self/cgroup is id:controllers:path; version 2 has no controllers in it.
std::optional<Group> read_group(const std::string& line, const std::string& root) {
  const std::size_t first = line.find(':');
  const std::size_t second = line.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return std::nullopt;
  const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
  const std::string path = line.substr(second + 1);
  if (controllers == ",,") return Group{root + "/sys/fs/cgroup", path, true};
  if (controllers.find(",cpu,") == std::string::npos) return std::nullopt;
  return Group{root + "/sys/fs/cgroup/cpu", path, false};
}

std::optional<std::size_t> cpus_of_folder(const std::string& folder, bool unified) {
  if (unified) return cpus_of_quota(first_line(folder + "/cpu.max"));
  return cpus_of_quota(first_line(folder + "/cpu.cfs_quota_us") + " " +
                       first_line(folder + "/cpu.cfs_period_us"));
}

std::optional<std::size_t> tighter(std::optional<std::size_t> a, std::optional<std::size_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

std::optional<std::size_t> cpus_of_quota(std::string_view text) noexcept {
  const char* end = text.data() + text.size();
  std::size_t quota = 0, period = 0;
  const auto [after, quota_error] = std::from_chars(text.data(), end, quota);
  if (quota_error != std::errc{} || after == end || *after != ' ') return std::nullopt;
  const auto [stop, period_error] = std::from_chars(after + 1, end, period);
  if (period_error != std::errc{} || stop != end || period == 0) return std::nullopt;
  return std::max<std::size_t>(1, quota / period + (quota % period != 0 ? 1 : 0));
}

std::optional<std::size_t> cgroup_cpus(const std::string& root) {
  std::optional<std::size_t> cpus;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::optional<Group> group = read_group(line, root);
    if (!group) continue;
    // Up to the mount: inside a container the path may name folders that only the host sees.
    for (std::string path = group->path;; path.resize(path.rfind('/'))) {
      cpus = tighter(cpus, cpus_of_folder(group->mount + path, group->unified));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return cpus;
}

std::size_t hardware_threads() {
  const std::size_t cpus = std::max<std::size_t>(1, affinity_cpus());
  return std::min(cpus, cgroup_cpus("").value_or(cpus));
}

}  // namespace lode::parallel
