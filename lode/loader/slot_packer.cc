#include "lode/loader/slot_packer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/io/read_engine.h"
#include "lode/loader/extents.h"

namespace lode::loader {
namespace {

constexpr std::size_t kMostOperations = 4096;

bool before(const SlotRead& a, const SlotRead& b) {
  if (a.extent.shard != b.extent.shard) return a.extent.shard < b.extent.shard;
  return a.extent.offset_bytes < b.extent.offset_bytes;
}

std::uint64_t end_of(const Extent& extent) { return extent.offset_bytes + extent.bytes; }

bool reaches(const Extent& first, const Extent& second, std::uint64_t gap_bytes) {
  return first.shard == second.shard && second.offset_bytes <= end_of(first) + gap_bytes;
}

// Adds one run, joining it with what lies near it.
void join(std::vector<SlotRead>& reads, const Extent& extent, std::uint64_t gap_bytes) {
  auto at = std::upper_bound(reads.begin(), reads.end(), SlotRead{extent, 0}, before);
  if (at != reads.begin() && reaches(std::prev(at)->extent, extent, gap_bytes)) {
    --at;
  } else {
    at = reads.insert(at, SlotRead{extent, 0});
  }
  Extent& joined = at->extent;
  std::uint64_t end = std::max(end_of(joined), end_of(extent));
  joined.bytes = end - joined.offset_bytes;
  auto next = std::next(at);
  while (next != reads.end() && reaches(joined, next->extent, gap_bytes)) {
    end = std::max(end, end_of(next->extent));
    joined.bytes = end - joined.offset_bytes;
    ++next;
  }
  reads.erase(std::next(at), next);
}

std::uint64_t bytes_of(const std::vector<SlotRead>& reads) {
  std::uint64_t bytes = 0;
  for (const SlotRead& read : reads) bytes += slot_room(read.extent);
  return bytes;
}

}  // namespace

bool SlotPacker::try_add(const Group& group, std::uint64_t gap_bytes) {
  std::vector<SlotRead> whole = whole_;
  std::vector<Extent> strided = strided_;
  for (const Operation& operation : group) {
    for (const SlotData* data : {&operation.codes, &operation.scales}) {
      if (data->extent.bytes == 0) continue;
      if (data->extent.count > 1) {
        if (std::find(strided.begin(), strided.end(), data->extent) == strided.end()) {
          strided.push_back(data->extent);
        }
      } else {
        join(whole, data->extent, gap_bytes);
      }
    }
  }
  std::uint64_t bytes = bytes_of(whole);
  for (const Extent& extent : strided) bytes += slot_room(extent);
  if (bytes > slot_bytes_) return false;
  whole_ = std::move(whole);
  strided_ = std::move(strided);
  return true;
}

void SlotPacker::add(Group group) {
  if (operations_.size() + group.size() > kMostOperations || !try_add(group, kMostGapBytes)) {
    flush();
    const bool added = try_add(group, kMostGapBytes) || try_add(group, 0);
    LODE_CHECK(added, "a group that no slot can hold");
  }
  std::move(group.begin(), group.end(), std::back_inserter(operations_));
}

// Where in the slot the bytes of `extent` are.
std::uint64_t SlotPacker::place_of(const Extent& extent, const SlotLoad& load) const {
  const auto end_of_whole = load.reads.begin() + std::ssize(whole_);
  if (extent.count > 1) {
    const auto read = std::find_if(end_of_whole, load.reads.end(),
                                   [&](const SlotRead& at) { return at.extent == extent; });
    return read->slot_offset_bytes;
  }
  const auto after =
      std::upper_bound(load.reads.begin(), end_of_whole, SlotRead{extent, 0}, before);
  const SlotRead& read = *std::prev(after);
  return read.slot_offset_bytes + (extent.offset_bytes - read.extent.offset_bytes);
}

void SlotPacker::flush() {
  if (operations_.empty()) return;
  SlotLoad load;
  load.reads = whole_;
  for (const Extent& extent : strided_) load.reads.push_back({extent, 0});
  std::uint64_t next = 0;
  for (SlotRead& read : load.reads) {
    const bool whole = read.extent.count == 1;
    read.slot_offset_bytes = next + (whole ? read.extent.offset_bytes % io::kBlockBytes : 0);
    next = read.slot_offset_bytes + read.extent.total_bytes();
    next = align_up<std::uint64_t>(next, whole ? io::kBlockBytes : kernels::kLineBytes);
  }
  for (Operation& operation : operations_) {
    for (SlotData* data : {&operation.codes, &operation.scales}) {
      if (data->extent.bytes != 0) data->slot_offset_bytes = place_of(data->extent, load);
    }
  }
  load.operations = std::move(operations_);
  operations_ = {};
  whole_.clear();
  strided_.clear();
  out_.push_back(std::move(load));
}

}  // namespace lode::loader
