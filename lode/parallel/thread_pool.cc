#include "lode/parallel/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "lode/base/check.h"
#include "lode/parallel/small_thread.h"

// One word says which tasks are free: {number of the run : 32, tasks not yet taken : 32}. To take
// one is to count the word down. A worker that slept through a run, or was descheduled in the
// middle of one, holds nobody up: the caller waits for tasks, not for workers, and no stale word
// can be counted down because the number of the run stands in it.

namespace lode::parallel {
namespace {

using Body = FunctionRef<void(std::size_t, std::size_t)>;

constexpr std::uint64_t kTasksMask = 0xFFFFFFFFu;
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr std::size_t kCacheLine = 64;

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins until `done` says so; false when that took longer than kSpin.
template <class Done>
bool spin_until(const Done& done) noexcept {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() - start < kSpin);
  return done();
}

}  // namespace

struct ThreadPool::Shared {
  alignas(kCacheLine) std::atomic<std::uint64_t> free_tasks{0};
  alignas(kCacheLine) std::atomic<std::uint32_t> finished{0};
  alignas(kCacheLine) std::atomic<std::uint32_t> bell{0};  // rung for each run, and at the end
  std::atomic<bool> stop{false};
  std::atomic<bool> running{false};
  // Of the present run; written by the caller while no task is free or unfinished.
  std::uint32_t num_tasks = 0;
  const Body* body = nullptr;
  std::vector<SmallThread> threads;

  bool has_free_task() const noexcept {
    return (free_tasks.load(std::memory_order_relaxed) & kTasksMask) != 0;
  }

  /// Takes and runs tasks until none is free.
  void work(std::size_t worker) noexcept {
    std::uint64_t word = free_tasks.load(std::memory_order_acquire);
    while ((word & kTasksMask) != 0) {
      if (!free_tasks.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
        continue;
      }
      // The run cannot end before this task has: num_tasks and body are this run's.
      const std::uint32_t total = num_tasks;
      (*body)(total - static_cast<std::uint32_t>(word & kTasksMask), worker);
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == total) finished.notify_one();
      word = free_tasks.load(std::memory_order_acquire);
    }
  }

  void serve(std::size_t worker) noexcept {
    while (true) {
      const std::uint32_t heard = bell.load(std::memory_order_acquire);
      work(worker);
      if (stop.load(std::memory_order_acquire)) return;
      const auto called = [&] {
        return has_free_task() || bell.load(std::memory_order_relaxed) != heard;
      };
      if (!spin_until(called)) bell.wait(heard, std::memory_order_acquire);
    }
  }

  void ring() noexcept {
    bell.fetch_add(1, std::memory_order_acq_rel);
    bell.notify_all();
  }

  void wait_finished() noexcept {
    const auto all = [&] { return finished.load(std::memory_order_acquire) == num_tasks; };
    if (spin_until(all)) return;
    for (std::uint32_t now = finished.load(std::memory_order_acquire); now != num_tasks;
         now = finished.load(std::memory_order_acquire)) {
      finished.wait(now, std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(std::size_t num_threads) : shared_(std::make_unique<Shared>()) {
  for (std::size_t worker = 1; worker < num_threads; ++worker) {
    Shared* shared = shared_.get();
    SmallThread thread =
        SmallThread::start("lode-worker", [shared, worker] { shared->serve(worker); });
    if (!thread.joinable()) break;
    shared_->threads.push_back(std::move(thread));
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_release);
  shared_->ring();
  shared_->threads.clear();
}

std::size_t ThreadPool::num_threads() const noexcept { return shared_->threads.size() + 1; }

void ThreadPool::run(std::size_t num_tasks, Body body) noexcept {
  Shared& shared = *shared_;
  LODE_CHECK(num_tasks < kTasksMask, "a run has less than 2^32 - 1 tasks");
  LODE_CHECK(!shared.running.exchange(true, std::memory_order_acquire),
             "ThreadPool::run inside a task, or from two threads");
  if (num_tasks <= 1 || shared.threads.empty()) {
    for (std::size_t task = 0; task < num_tasks; ++task) body(task, 0);
  } else {
    shared.num_tasks = static_cast<std::uint32_t>(num_tasks);
    shared.body = &body;
    shared.finished.store(0, std::memory_order_relaxed);
    const std::uint64_t run = (shared.free_tasks.load(std::memory_order_relaxed) >> 32) + 1;
    shared.free_tasks.store(run << 32 | num_tasks, std::memory_order_release);
    shared.ring();
    shared.work(0);
    shared.wait_finished();
  }
  shared.running.store(false, std::memory_order_release);
}

}  // namespace lode::parallel
