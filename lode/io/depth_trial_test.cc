#include "lode/io/depth_trial.h"

#include <gtest/gtest.h>

#include "lode/base/bytes.h"

namespace lode::io {
namespace {

// Feeds each depth a tenth of a second of its speed, in GB/s.
std::uint32_t chosen(const std::vector<std::uint64_t>& speeds) {
  DepthTrial trial(16 * kMiB);
  std::uint64_t now_us = 5;
  trial.came(kMiB, now_us);
  for (const std::uint64_t speed : speeds) {
    EXPECT_FALSE(trial.settled());
    trial.came(speed * 50'000'000, now_us += 50'000);
    trial.came(speed * 50'000'000, now_us += 50'000);
  }
  EXPECT_TRUE(trial.settled());
  return trial.now().num_reads;
}

TEST(DepthTrial, KeepsTheFastestDepth) {
  EXPECT_EQ(chosen({10, 20, 15}), 16U);
  EXPECT_EQ(chosen({10, 20, 30}), 32U);
  EXPECT_EQ(chosen({30, 20, 10}), 8U);
}

TEST(DepthTrial, TakesADeeperQueueOnlyIfItGainsMoreThanNoise) {
  EXPECT_EQ(chosen({100, 104, 103}), 8U);
  EXPECT_EQ(chosen({100, 106, 107}), 16U);
}

TEST(DepthTrial, NeverHasMoreUnderWayThanItMay) {
  for (const std::uint64_t most : {4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    const DepthTrial trial(most);
    for (const DepthTrial::Depth& depth : trial.depths()) {
      EXPECT_LE(depth.num_reads * depth.piece_bytes, most);
      EXPECT_LE(depth.piece_bytes, 2 * kMiB);
    }
  }
  EXPECT_EQ(DepthTrial(16 * kMiB).depths().size(), 3U);
}

TEST(DepthTrial, IsOverBeforeItBeginsWhereOneDepthFits) { EXPECT_TRUE(DepthTrial(kMiB).settled()); }

}  // namespace
}  // namespace lode::io
