#pragma once

#include <deque>
#include <vector>

#include "lode/loader/slicing.h"

namespace lode::loader {

/// Puts groups together until a slot is full. Bytes that lie near each other in a file (a gap of at
/// most kMostGapBytes) are read at once, so that a scalar does not cost a read. One run lies as far
/// behind a block's beginning as in its file, and has its first and last block for itself, so that
/// it can be read past the page cache.
class SlotPacker {
 public:
  static constexpr std::uint64_t kMostGapBytes = 256 * kKiB;

  SlotPacker(std::uint64_t slot_bytes, std::deque<SlotLoad>& out)
      : slot_bytes_(slot_bytes), out_(out) {}

  /// Takes a group that fits into a slot by itself.
  void add(Group group);
  /// Ends the slot that is being filled.
  void flush();

 private:
  bool try_add(const Group& group, std::uint64_t gap_bytes);
  std::uint64_t place_of(const Extent& extent, const SlotLoad& load) const;

  std::uint64_t slot_bytes_;
  std::deque<SlotLoad>& out_;
  std::vector<Operation> operations_;
  std::vector<SlotRead> whole_;  // single runs joined; sorted by shard and offset, disjoint
  std::vector<Extent> strided_;  // of several runs, each once
};

}  // namespace lode::loader
