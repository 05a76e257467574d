#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "lode/base/result.h"
#include "lode/comm/fate.h"
#include "lode/parallel/function_ref.h"

namespace lode::comm {

/// Where the threads of one process that are ranks wait for each other; one for a group and all its
/// duplicates.
///
/// They read each other's spans where they lie. So a rank may not return from a failed call, whose
/// spans its caller then frees, while another one reads: readers are counted, nobody begins to
/// read after a failure, and whoever returns a failure waits until there are none.
class ThreadBoard {
 public:
  enum class Wait { kDone, kFailed, kTimeout };

  /// Errors: the failure.
  Status status() const { return fate_.status(); }

  /// Fails everything, wakes all, and returns the Error that stands.
  Error raise(Error error);

  /// Until `done` or a failure or the deadline. Spins and yields for a moment, as most waits are
  /// short; then sleeps until `wake`. `done` reads what is atomic or guarded by its own lock.
  Wait wait(std::chrono::milliseconds deadline, parallel::FunctionRef<bool()> done);
  void wake() noexcept;

  /// Calls `read` unless there has been a failure; what it reads stays until it returns.
  /// Errors: the failure.
  Status while_readable(parallel::FunctionRef<void()> read);

  /// Returns the failure when no rank reads another's spans any more. Never without a failure.
  Error settled_failure();

 private:
  Fate fate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<int> readers_{0};
};

}  // namespace lode::comm
