// What a run costs beyond its tasks: workers spinning, and workers asleep.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lode/parallel/thread_pool.h"

namespace lode::parallel {
namespace {

void BM_ForkJoinSpinning(benchmark::State& state) {
  ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  std::atomic<std::size_t> calls{0};
  pool.run(16, [&](std::size_t, std::size_t) { calls.fetch_add(1); });
  if (calls != 16) {
    state.SkipWithError("wrong runs are not timed");
    return;
  }
  for (auto _ : state)
    pool.run(16, [](std::size_t task, std::size_t) { benchmark::DoNotOptimize(task); });
}
BENCHMARK(BM_ForkJoinSpinning)->Arg(1)->Arg(2)->UseRealTime();

void BM_ForkJoinAsleep(benchmark::State& state) {
  ThreadPool pool(2);
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    const auto start = std::chrono::steady_clock::now();
    pool.run(16, [](std::size_t task, std::size_t) { benchmark::DoNotOptimize(task); });
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(BM_ForkJoinAsleep)->UseManualTime();

}  // namespace
}  // namespace lode::parallel
