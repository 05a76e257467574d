#include "lode/memory/passing_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/memory/held_probe.h"
#include "tests/support/sanitizers.h"

namespace lode::memory {
namespace {

TEST(PassingBuffer, IsZeroAndKeepsWhatIsWrittenBehindItsFront) {
  auto buffer = PassingBuffer::make(5 * kMiB, "test");
  ASSERT_TRUE(buffer);
  const std::span<std::byte> bytes = buffer->mutate();
  ASSERT_EQ(bytes.size(), 5 * kMiB);
  EXPECT_EQ(bytes[5 * kMiB - 1], std::byte{0});
  bytes[3 * kMiB] = std::byte{7};
  buffer->pass(2 * kMiB);
  EXPECT_EQ(bytes[3 * kMiB], std::byte{7});
  buffer->pass(5 * kMiB);
  EXPECT_EQ(buffer->front_bytes(), 6 * kMiB);
}

TEST(PassingBuffer, HoldsOnlyWhatHasNotPassedWhateverItsSize) {
  if (testing_support::kSanitized) GTEST_SKIP() << "shadow memory is held, too";
  const auto probe = HeldProbe::make();
  ASSERT_TRUE(probe);
  auto buffer = PassingBuffer::make(100 * kGiB, "test");
  ASSERT_TRUE(buffer);
  std::uint64_t most = 0;
  for (std::uint64_t at = 0; at < 512 * kMiB; at += 2 * kMiB) {
    const auto chunk = buffer->mutate().subspan(at, 2 * kMiB);
    std::fill(chunk.begin(), chunk.end(), std::byte{1});
    const auto held = probe->held_bytes();
    ASSERT_TRUE(held);
    most = std::max(most, *held);
    buffer->pass(at + 2 * kMiB);
  }
  EXPECT_LT(most, 8 * kMiB);
}

using PassingBufferDeathTest = testing::Test;

TEST(PassingBufferDeathTest, DoesNotGoBack) {
  auto buffer = PassingBuffer::make(8 * kMiB, "test");
  ASSERT_TRUE(buffer);
  buffer->pass(4 * kMiB);
  EXPECT_DEATH(buffer->pass(2 * kMiB), "forwards");
}

}  // namespace
}  // namespace lode::memory
