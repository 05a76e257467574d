#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lode/loader/operation.h"
#include "lode/loader/stage_run.h"

namespace lode::loader {

/// One slot of the ring: its bytes and what they are for.
struct Slot {
  std::span<std::byte> bytes;
  SlotLoad load;
  StageRun* stage = nullptr;   // that the load is of
  std::uint64_t sequence = 0;  // of the load; tells which of two errors came first
  std::uint64_t reads_to_come = 0;
};

/// The slots between reader and workers: free, being read, full, being emptied. Thread-safe; a full
/// ring makes the reader wait, so that nothing piles up.
class Ring {
 public:
  Ring(std::span<std::byte> bytes, std::uint32_t num_slots);

  Slot& slot(std::size_t idx) { return slots_[idx]; }

  /// A free slot, if there is one now.
  std::optional<std::size_t> try_take_free();
  /// Waits until a slot that a worker holds is given back; false if none holds any.
  bool wait_for_free();
  void give_back(std::size_t idx);  // by whoever has it: reader or worker

  /// For workers: hands a slot that has been read over, takes the next one; nothing once closed.
  void push_full(std::size_t idx);
  std::optional<std::size_t> take_full();
  void close();

 private:
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::condition_variable filled_;
  std::deque<std::size_t> free_;
  std::deque<std::size_t> full_;
  std::size_t with_workers_ = 0;  // full or being emptied
  std::vector<bool> is_with_worker_;
  bool closed_ = false;
};

}  // namespace lode::loader
