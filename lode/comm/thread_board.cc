#include "lode/comm/thread_board.h"

#include <sched.h>

namespace lode::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kSpin{50};  // as ThreadPool's workers do

}  // namespace

Error ThreadBoard::raise(Error error) {
  Error standing = fate_.raise(std::move(error));
  wake();
  return standing;
}

ThreadBoard::Wait ThreadBoard::wait(std::chrono::milliseconds deadline,
                                    parallel::FunctionRef<bool()> done) {
  const auto began = Clock::now();
  const auto over = [&] { return done() || fate_.failed(); };
  while (!over() && Clock::now() - began < kSpin) sched_yield();
  if (!over()) {
    std::unique_lock lock(mutex_);
    // Announced before `done` is asked again: what changes from now on is followed by a wake.
    sleepers_.fetch_add(1);
    changed_.wait_until(lock, began + deadline, over);
    sleepers_.fetch_sub(1);
  }
  if (fate_.failed()) return Wait::kFailed;
  return done() ? Wait::kDone : Wait::kTimeout;
}

void ThreadBoard::wake() noexcept {
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }  // not between a sleeper's last look and its sleep
  changed_.notify_all();
}

Status ThreadBoard::while_readable(parallel::FunctionRef<void()> read) {
  readers_.fetch_add(1);
  const bool allowed = !fate_.failed();
  if (allowed) read();
  readers_.fetch_sub(1);
  return allowed ? Status() : fate_.status();
}

Error ThreadBoard::settled_failure() {
  while (readers_.load() != 0) sched_yield();  // a copy ends by itself: no deadline needed
  return fate_.status().error();
}

}  // namespace lode::comm
