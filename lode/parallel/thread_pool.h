#pragma once

#include <cstddef>
#include <memory>

#include "lode/parallel/function_ref.h"

namespace lode::parallel {

/// Threads that work on numbered tasks together with the caller. Which worker gets a task is left
/// to chance and noise, so what a task computes must not depend on the worker: then results do not
/// depend on the number of threads.
///
/// Workers spin for about 50 us after a run, so that the next one starts within a microsecond, and
/// then sleep in the kernel. They are not pinned: on a shared machine a pinned worker would wait
/// for its core while another one idles. Floating point is IEEE in all of them (no flushing of
/// subnormals), for exact kernels rely on it.
class ThreadPool {
 public:
  /// Worker 0 is whoever calls `run`; num_threads - 1 threads are started (at least none). Where
  /// the system gives fewer, the pool is smaller.
  explicit ThreadPool(std::size_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Threads that may work at once, the caller included.
  std::size_t num_threads() const noexcept;

  /// Calls body(task, worker) once for every task < num_tasks, worker < num_threads(), and returns
  /// when all have returned; what they wrote is visible then. Tasks start in rising order. A body
  /// must not throw, nor call `run` of the same pool; nor may two threads call `run` at once.
  void run(std::size_t num_tasks,
           FunctionRef<void(std::size_t task, std::size_t worker)> body) noexcept;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lode::parallel
