#include "lode/memory/budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::memory {
namespace {

constexpr std::uint64_t kLeastFloor = 256 * kMiB;
constexpr std::uint64_t kMostFloor = 6 * kGiB;
constexpr std::uint64_t kMostOwn = 8 * kMiB;
// Version 1 writes "no limit" as the largest whole number of pages in 63 bits.
constexpr std::uint64_t kVersion1Unlimited = 1ULL << 62;

struct Available {
  std::uint64_t bytes;
  std::uint64_t of_bytes;  // the size of the machine or cgroup that decides
  std::string source;
};

Available least_available(const MachineMemory& machine) {
  Available least{machine.available_bytes, machine.total_bytes, "MemAvailable"};
  for (const CgroupMemory& cgroup : machine.cgroups) {
    const std::uint64_t others = cgroup.used_bytes - std::min(cgroup.used_bytes, machine.own_bytes);
    const std::uint64_t used = std::min(others, cgroup.limit_bytes);
    const std::uint64_t free = cgroup.limit_bytes - used;
    if (free < least.bytes) least = {free, cgroup.limit_bytes, "cgroup " + cgroup.path};
  }
  return least;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<std::uint64_t> number_at(std::string_view text) {
  const auto begin = text.find_first_of("0123456789");
  if (begin == text.npos) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (fault != std::errc{}) return std::nullopt;
  return number;
}

// The number behind `key` in lines of "key number".
std::optional<std::uint64_t> field(std::string_view text, std::string_view key) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.starts_with(key)) return number_at(line.substr(key.size()));
    begin = end + 1;
  }
  return std::nullopt;
}

// What is charged to a group and cannot be dropped at once.
std::uint64_t used_bytes(const std::string& root, const CgroupFolder& folder) {
  const bool v2 = folder.version_2;
  const auto file = [&](const char* name) { return read_text(root + folder.path + "/" + name); };
  const auto used = number_at(file(v2 ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const auto droppable =
      field(file("memory.stat"), v2 ? "inactive_file " : "total_inactive_file ").value_or(0);
  return used - std::min(used, droppable);
}

// What the innermost group is charged for where this process is alone in it. Not more than a
// program that has just begun can be: a plan has room for that.
std::uint64_t own_bytes(const std::string& root, const CgroupFolder& folder) {
  const std::string members = read_text(root + folder.path + "/cgroup.procs");
  if (std::ranges::count(members, '\n') != 1) return 0;
  return std::min(used_bytes(root, folder), kMostOwn);
}

std::optional<CgroupMemory> read_cgroup(const std::string& root, const CgroupFolder& folder) {
  const bool v2 = folder.version_2;
  const auto file = [&](const char* name) { return read_text(root + folder.path + "/" + name); };
  const auto limit = parse_cgroup_limit(file(v2 ? "memory.max" : "memory.limit_in_bytes"));
  if (!limit) return std::nullopt;
  const std::uint64_t used = used_bytes(root, folder);
  const auto kills = field(file(v2 ? "memory.events" : "memory.oom_control"), "oom_kill ");
  return CgroupMemory{folder.path, *limit, used, kills.value_or(0)};
}

// /a/b/c below root gives root/a/b/c, root/a/b, root/a, root.
void append_ancestors(std::vector<CgroupFolder>& folders, std::string_view root,
                      std::string_view path, bool version_2) {
  while (path.size() > 1) {
    folders.push_back({fmt::format("{}{}", root, path), version_2});
    path = path.substr(0, path.rfind('/'));
  }
  folders.push_back({std::string(root), version_2});
}

}  // namespace

Budget decide_budget(const MachineMemory& machine, std::optional<std::uint64_t> wanted_bytes) {
  const Available available = least_available(machine);
  if (!wanted_bytes) {
    const std::uint64_t floor =
        std::min(std::clamp(available.of_bytes / 20, kLeastFloor, kMostFloor), available.bytes / 2);
    return {available.bytes - floor, floor, available.source, ""};
  }
  if (*wanted_bytes <= available.bytes) return {*wanted_bytes, 0, "--memory", ""};
  return {available.bytes, 0, available.source,
          fmt::format("--memory names {}, but only {} are available ({}); that is the limit",
                      human_bytes(*wanted_bytes), human_bytes(available.bytes), available.source)};
}

Result<MachineMemory> parse_meminfo(std::string_view meminfo) {
  const auto total = field(meminfo, "MemTotal:");
  const auto available = field(meminfo, "MemAvailable:");
  if (!total || !available) {
    return Error{.code = Code::kIo,
                 .thing = "/proc/meminfo",
                 .wanted = "lines MemTotal and MemAvailable",
                 .found = "other text"};
  }
  return MachineMemory{*total * kKiB, *available * kKiB, {}};
}

std::optional<std::uint64_t> parse_cgroup_limit(std::string_view text) {
  const auto limit = number_at(text);
  if (!limit || *limit >= kVersion1Unlimited) return std::nullopt;
  return limit;
}

std::vector<CgroupFolder> memory_cgroup_folders(std::string_view proc_self_cgroup) {
  std::vector<CgroupFolder> folders;
  std::size_t begin = 0;
  while (begin < proc_self_cgroup.size()) {
    const std::size_t end = std::min(proc_self_cgroup.find('\n', begin), proc_self_cgroup.size());
    const std::string_view line = proc_self_cgroup.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string_view path = line.substr(second + 1);
    if (line.starts_with("0::")) append_ancestors(folders, "/sys/fs/cgroup", path, true);
    if (controllers.find(",memory,") != controllers.npos) {
      append_ancestors(folders, "/sys/fs/cgroup/memory", path, false);
    }
  }
  return folders;
}

Result<MachineMemory> read_machine_memory(const std::string& root) {
  LODE_TRY(MachineMemory machine, parse_meminfo(read_text(root + "/proc/meminfo")));
  const auto folders = memory_cgroup_folders(read_text(root + "/proc/self/cgroup"));
  if (!folders.empty()) machine.own_bytes = own_bytes(root, folders.front());
  for (const CgroupFolder& folder : folders) {
    if (auto cgroup = read_cgroup(root, folder)) machine.cgroups.push_back(std::move(*cgroup));
  }
  return machine;
}

}  // namespace lode::memory
