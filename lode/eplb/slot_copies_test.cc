#include "lode/eplb/slot_copies.h"

#include <gtest/gtest.h>

#include <vector>

#include "lode/eplb/test_banks.h"

namespace lode::eplb {
namespace {

// Records of several pieces, the last of them not whole.
constexpr std::size_t kBytes = 2 * 4096 + 100;

std::vector<std::byte> records_of(const std::vector<std::int32_t>& experts) {
  std::vector<std::byte> bytes;
  for (const std::int32_t expert : experts) {
    const std::vector<std::byte> one = test::record_of(expert, 0, kBytes);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

std::size_t expect_rearranged(const std::vector<std::int32_t>& now,
                              const std::vector<std::int32_t>& next,
                              const std::vector<std::int32_t>& received) {
  std::vector<std::byte> bank = records_of(now);
  const std::vector<std::byte> buffer = records_of(received);
  const std::size_t written = rearrange({now, next, received}, {bank, buffer, kBytes});
  EXPECT_EQ(bank, records_of(next));
  return written;
}

TEST(SlotCopies, TurnCirclesOfLongRecords) {
  EXPECT_EQ(expect_rearranged({0, 1}, {1, 0}, {}), 2U);
  EXPECT_EQ(expect_rearranged({0, 1, 2, 3, 4}, {2, 0, 1, 4, 3}, {}), 5U);
}

TEST(SlotCopies, OverwriteNoSlotBeforeItsLastReader) {
  EXPECT_EQ(expect_rearranged({0, 1, 2, 3}, {1, 2, 3, 9}, {9}), 4U);
  EXPECT_EQ(expect_rearranged({0, 1, 2, 3}, {9, 0, 0, 1}, {8, 9}), 4U);
  EXPECT_EQ(expect_rearranged({0, 1, 2}, {1, 0, 0}, {}), 3U);
}

TEST(SlotCopies, WriteOnlyWhatChanges) {
  EXPECT_EQ(expect_rearranged({0, 1, 2}, {0, 1, 2}, {}), 0U);
  EXPECT_EQ(expect_rearranged({0, 1, 2}, {0, 7, 2}, {7}), 1U);
}

}  // namespace
}  // namespace lode::eplb
