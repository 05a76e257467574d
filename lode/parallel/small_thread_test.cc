#include "lode/parallel/small_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

namespace lode::parallel {
namespace {

TEST(SmallThread, RunsItsBodyBeforeItIsJoined) {
  std::atomic<bool> ran{false};
  SmallThread thread = SmallThread::start("test", [&] { ran = true; });
  ASSERT_TRUE(thread.joinable());
  thread.join();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(thread.joinable());
}

TEST(SmallThread, IsJoinedWhenItIsDestroyedOrReplaced) {
  std::atomic<int> ran{0};
  {
    SmallThread thread = SmallThread::start("test", [&] { ++ran; });
    SmallThread moved = std::move(thread);
    moved = SmallThread::start("test", [&] { ++ran; });
    EXPECT_GE(ran, 1);
  }
  EXPECT_EQ(ran, 2);
}

TEST(SmallThread, TakesNoSignalsOfOthersAndLeavesTheStartersMaskAlone) {
  sigset_t before, after, inside;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  SmallThread::start("test", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&inside, SIGINT), 1);
  EXPECT_EQ(sigismember(&inside, SIGTERM), 1);
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) EXPECT_EQ(sigismember(&inside, own), 0);
  EXPECT_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
}

TEST(SmallThread, HasASmallStack) {
  std::size_t stack_bytes = 0;
  SmallThread::start("test", [&] {
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstacksize(&attributes, &stack_bytes);
    pthread_attr_destroy(&attributes);
  }).join();
  EXPECT_GT(stack_bytes, 0u);
  EXPECT_LE(stack_bytes, 2048u * 1024);  // 256 KiB and what libc and sanitizers add; not 8 MiB
}

}  // namespace
}  // namespace lode::parallel
