#include "lode/memory/mapped_table.h"

#include <algorithm>
#include <atomic>

namespace lode::memory {
namespace {

// A handler can reach nothing but a table of the process. Two sections a layer: enough for 500.
constexpr std::size_t kNumEntries = 1024;
constexpr std::uintptr_t kFree = 0;
constexpr std::uintptr_t kClaimed = 1;  // being written

struct Entry {
  std::atomic<std::uintptr_t> begin = kFree;
  std::atomic<std::uint64_t> bytes = 0;
  std::atomic<std::uint64_t> offset_bytes = 0;
  std::array<char, 248> path{};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free, "read by a signal handler");

std::array<Entry, kNumEntries> entries;

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

bool find_mapped(const void* address, MappedPlace& place) noexcept {
  const std::uintptr_t wanted = number_of(address);
  for (const Entry& entry : entries) {
    const std::uintptr_t begin = entry.begin.load(std::memory_order_acquire);
    if (begin <= kClaimed || wanted < begin) continue;
    const std::uint64_t within = wanted - begin;
    if (within >= entry.bytes.load(std::memory_order_relaxed)) continue;
    place.path = entry.path;
    place.offset_bytes = entry.offset_bytes.load(std::memory_order_relaxed) + within;
    return true;
  }
  return false;
}

int remember_mapped(const void* begin, std::uint64_t bytes, std::uint64_t offset_bytes,
                    std::string_view path) noexcept {
  for (std::size_t i = 0; i < kNumEntries; ++i) {
    Entry& entry = entries[i];
    std::uintptr_t free = kFree;
    if (!entry.begin.compare_exchange_strong(free, kClaimed)) continue;
    const std::size_t most = entry.path.size() - 1;
    const std::string_view last = path.substr(path.size() - std::min(path.size(), most));
    entry.path.fill('\0');
    std::copy(last.begin(), last.end(), entry.path.begin());
    entry.bytes.store(bytes, std::memory_order_relaxed);
    entry.offset_bytes.store(offset_bytes, std::memory_order_relaxed);
    entry.begin.store(number_of(begin), std::memory_order_release);
    return static_cast<int>(i);
  }
  return -1;
}

void forget_mapped(int entry_id) noexcept {
  if (entry_id < 0) return;
  entries[static_cast<std::size_t>(entry_id)].begin.store(kFree, std::memory_order_release);
}

}  // namespace lode::memory
