#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "lode/base/result.h"
#include "lode/loader/drain.h"
#include "lode/parallel/small_thread.h"

namespace lode::loader {

/// Gathers bytes that are made in order into whole chunks and hands them to a sink on a thread of
/// its own: one half of the memory is being filled while the other is being taken.
class Outlet {
 public:
  /// `memory` [two halves, each a chunk and room for what is made at once]; borrowed.
  Outlet(ChunkSink& sink, std::span<std::byte> memory);
  ~Outlet();

  /// Errors: kOther where the system gives no thread.
  Status start();

  /// What follows is of this bank, from `offset_bytes` on; what came before is complete.
  void begin(std::size_t stage_idx, std::uint64_t offset_bytes);
  /// Room for `bytes` more, to be filled and then `add`ed.
  /// Errors: those of the sink.
  Result<std::span<std::byte>> room(std::uint64_t bytes);
  void add(std::uint64_t bytes) noexcept { filled_ += bytes; }
  /// Drops the first bytes of what was added last: they were wanted by an earlier stream.
  void drop_front(std::uint64_t bytes) noexcept;
  /// Hands out what is left of the bank, and waits until the sink has all of it.
  /// Errors: those of the sink.
  Status end();

 private:
  Status hand_over(std::uint64_t bytes);
  Status wait_until_taken();
  void work();

  ChunkSink& sink_;
  std::span<std::byte> halves_[2];
  std::size_t half_ = 0;      // that is being filled
  std::uint64_t filled_ = 0;  // bytes of it
  ChunkRun next_;             // what its first byte is
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ChunkRun> handed_;  // to the thread
  std::optional<Error> error_;
  bool ending_ = false;
  parallel::SmallThread thread_;
};

}  // namespace lode::loader
