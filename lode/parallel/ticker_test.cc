#include "lode/parallel/ticker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace lode::parallel {
namespace {

using std::chrono::milliseconds;

TEST(Ticker, TicksAtOnceAndAgainAndAgain) {
  std::atomic<int> ticks{0};
  auto ticker = Ticker::start(milliseconds(1), [&] { ++ticks; });
  ASSERT_TRUE(ticker);
  const auto start = std::chrono::steady_clock::now();
  while (ticks < 5 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(ticks, 5);
}

TEST(Ticker, DoesNotTickAfterItsEndAndDoesNotWaitForAPeriod) {
  std::atomic<int> ticks{0};
  const auto start = std::chrono::steady_clock::now();
  {
    auto ticker = Ticker::start(std::chrono::hours(1), [&] { ++ticks; });
    ASSERT_TRUE(ticker);
    Ticker moved = *std::move(ticker);
    while (ticks == 0) std::this_thread::yield();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
  EXPECT_EQ(ticks, 1);
}

TEST(Ticker, FinishesATickThatIsRunningWhenItEnds) {
  std::atomic<bool> began{false}, ended{false};
  {
    auto ticker = Ticker::start(std::chrono::hours(1), [&] {
      began = true;
      std::this_thread::sleep_for(milliseconds(10));
      ended = true;
    });
    ASSERT_TRUE(ticker);
    while (!began) std::this_thread::yield();
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace lode::parallel
