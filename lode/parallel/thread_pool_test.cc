#include "lode/parallel/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace lode::parallel {
namespace {

class ThreadPoolOfSize : public testing::TestWithParam<std::size_t> {};

TEST_P(ThreadPoolOfSize, RunsEveryTaskOnceOnAWorkerThatExists) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), std::max<std::size_t>(1, GetParam()));
  for (const std::size_t tasks : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
    std::vector<std::atomic<int>> calls(tasks);
    std::atomic<bool> worker_exists{true};
    pool.run(tasks, [&](std::size_t task, std::size_t worker) {
      calls[task].fetch_add(1);
      if (worker >= pool.num_threads()) worker_exists = false;
    });
    for (std::size_t task = 0; task < tasks; ++task) ASSERT_EQ(calls[task], 1) << task;
    EXPECT_TRUE(worker_exists);
  }
}

// Plain memory, no atomics: TSan sees whether run() orders it.
TEST_P(ThreadPoolOfSize, ShowsTheCallerWhatTasksWroteAndTasksWhatTheCallerWrote) {
  ThreadPool pool(GetParam());
  std::vector<std::size_t> in(50), out(50);
  for (std::size_t round = 0; round < 2000; ++round) {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = round + i;
    pool.run(in.size(), [&](std::size_t task, std::size_t) { out[task] = 2 * in[task]; });
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], 2 * (round + i));
  }
}

TEST_P(ThreadPoolOfSize, WakesWorkersThatWentToSleep) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // far longer than they spin
    std::atomic<std::size_t> sum{0};
    pool.run(100, [&](std::size_t task, std::size_t) { sum += task; });
    EXPECT_EQ(sum, 4950u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ThreadPoolOfSize, testing::Values(0, 1, 2, 3, 8));

TEST(ThreadPool, LetsSeveralWorkersWorkAtOnce) {
  ThreadPool pool(2);
  // Each task waits for the other: one worker alone would never come back.
  std::atomic<int> arrived{0};
  pool.run(2, [&](std::size_t, std::size_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, WaitsForTasksThatTakeLong) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.run(3, [&](std::size_t, std::size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done.fetch_add(1);
  });
  EXPECT_EQ(done, 3);
}

TEST(ThreadPool, MayBeOneOfMany) {
  ThreadPool outer(2), inner(2);
  std::atomic<int> calls{0};
  std::atomic<bool> inner_is_taken{false};
  outer.run(2, [&](std::size_t, std::size_t) {
    while (inner_is_taken.exchange(true)) std::this_thread::yield();
    inner.run(10, [&](std::size_t, std::size_t) { calls.fetch_add(1); });
    inner_is_taken = false;
  });
  EXPECT_EQ(calls, 20);
}

TEST(ThreadPoolDeathTest, RefusesARunInsideATask) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto nested = [] {
    ThreadPool pool(2);
    pool.run(2, [&](std::size_t, std::size_t) { pool.run(1, [](std::size_t, std::size_t) {}); });
  };
  EXPECT_DEATH(nested(), "inside a task");
  const auto nested_alone = [] {
    ThreadPool pool(1);
    pool.run(1, [&](std::size_t, std::size_t) { pool.run(1, [](std::size_t, std::size_t) {}); });
  };
  EXPECT_DEATH(nested_alone(), "inside a task");
}

}  // namespace
}  // namespace lode::parallel
