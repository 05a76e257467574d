#include "lode/memory/pressure.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::memory {
namespace {

constexpr std::uint64_t kLeastFloor = 32 * kMiB;
constexpr std::uint64_t kMostFloor = 512 * kMiB;
// A plan promises more than is taken in the end: slots that a small model never fills, the
// program's own bytes. So much may be missing before it means anything.
constexpr std::uint64_t kSlackBytes = 32 * kMiB;
constexpr std::uint64_t kShortForUs = 300'000;
constexpr std::uint64_t kStallWindowUs = 900'000;
constexpr std::uint64_t kNearFloors = 8;  // so many floors and less: near

std::optional<std::string> killed(std::span<const PressureSample> window) {
  for (const CgroupMemory& now : window.back().machine.cgroups) {
    for (const CgroupMemory& before : window.front().machine.cgroups) {
      if (before.path != now.path || now.num_kills <= before.num_kills) continue;
      return fmt::format("the kernel killed a process of cgroup {} for memory", now.path);
    }
  }
  return std::nullopt;
}

std::optional<std::string> below_floor(std::span<const PressureSample> window) {
  const std::uint64_t floor = pressure_floor_bytes(window.back().machine.total_bytes);
  // One reading alone may be an instant between two counters.
  for (const PressureSample& sample : window.last(std::min<std::size_t>(window.size(), 2))) {
    if (sample.machine.available_bytes >= floor || sample.to_come_bytes == 0) return std::nullopt;
  }
  if (window.size() < 2) return std::nullopt;
  return fmt::format("MemAvailable {}, below the floor of {}",
                     human_bytes(window.back().machine.available_bytes), human_bytes(floor));
}

struct Free {
  std::uint64_t bytes;
  std::string where;
};

Free least_free(const MachineMemory& machine) {
  Free least{machine.available_bytes, "MemAvailable"};
  for (const CgroupMemory& cgroup : machine.cgroups) {
    const std::uint64_t used = std::min(cgroup.used_bytes, cgroup.limit_bytes);
    if (cgroup.limit_bytes - used < least.bytes) {
      least = {cgroup.limit_bytes - used, "cgroup " + cgroup.path};
    }
  }
  return least;
}

bool is_short(const PressureSample& sample) {
  return sample.to_come_bytes > least_free(sample.machine).bytes + kSlackBytes;
}

std::optional<std::string> short_of_memory(std::span<const PressureSample> window) {
  const PressureSample& now = window.back();
  const PressureSample* since = nullptr;  // of the unbroken run of short samples
  for (auto at = window.rbegin(); at != window.rend() && is_short(*at); ++at) since = &*at;
  if (since == nullptr || now.at_us - since->at_us < kShortForUs) return std::nullopt;
  const Free free = least_free(now.machine);
  return fmt::format("{} still to come, only {} free ({})", human_bytes(now.to_come_bytes),
                     human_bytes(free.bytes), free.where);
}

std::optional<std::string> stalled(std::span<const PressureSample> window) {
  const PressureSample& first = window.front();
  const PressureSample& now = window.back();
  const std::uint64_t passed_us = now.at_us - first.at_us;
  if (!first.stalled_us || !now.stalled_us || passed_us < kStallWindowUs) return std::nullopt;
  const std::uint64_t near = kNearFloors * pressure_floor_bytes(now.machine.total_bytes);
  if (now.machine.available_bytes >= near || now.to_come_bytes == 0) return std::nullopt;
  const std::uint64_t stalled_us = *now.stalled_us - std::min(*first.stalled_us, *now.stalled_us);
  if (stalled_us * 3 < passed_us) return std::nullopt;
  return fmt::format("all tasks waited for memory for {} of the last {} ms, MemAvailable {}",
                     stalled_us / 1000, passed_us / 1000, human_bytes(now.machine.available_bytes));
}

}  // namespace

std::uint64_t pressure_floor_bytes(std::uint64_t total_bytes) noexcept {
  return std::clamp(total_bytes / 256, kLeastFloor, kMostFloor);
}

std::optional<std::string> pressure_seen(std::span<const PressureSample> window) {
  if (window.empty()) return std::nullopt;
  if (auto why = killed(window)) return why;
  if (auto why = below_floor(window)) return why;
  if (auto why = short_of_memory(window)) return why;
  return stalled(window);
}

std::optional<std::uint64_t> parse_stalled_us(std::string_view text) {
  const std::size_t line = text.starts_with("full ") ? 0 : text.find("\nfull ");
  if (line == text.npos) return std::nullopt;
  constexpr std::string_view kTotal = " total=";
  const std::size_t at = text.find(kTotal, line + 1);
  if (at == text.npos) return std::nullopt;
  std::uint64_t total_us = 0;
  const char* const begin = text.data() + at + kTotal.size();
  const auto [end, fault] = std::from_chars(begin, text.data() + text.size(), total_us);
  if (fault != std::errc{} || end == begin) return std::nullopt;
  return total_us;
}

Result<PressureSample> read_pressure(const std::string& root) {
  PressureSample sample;
  LODE_TRY(sample.machine, read_machine_memory(root));
  std::ifstream file(root + "/proc/pressure/memory", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  sample.stalled_us = parse_stalled_us(text);
  return sample;
}

}  // namespace lode::memory
