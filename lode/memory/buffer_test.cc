#include "lode/memory/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lode/base/bytes.h"

namespace lode::memory {
namespace {

std::uintptr_t address(const Buffer& buffer) {
  std::uintptr_t value = 0;
  const std::byte* const data = buffer.bytes().data();
  std::memcpy(&value, &data, sizeof value);
  return value;
}

TEST(Buffer, PaysForWholePagesAndTheirTable) {
  Ledger ledger(kMiB);
  const auto buffer = make_buffer(ledger, Tag::kScratch, 5000, "small");
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->bytes().size(), 5000U);
  EXPECT_EQ(ledger.held_bytes(Tag::kScratch), 8192U);
  EXPECT_EQ(ledger.held_bytes(Tag::kPageTables), 4096U);
}

TEST(Buffer, FromTwoMebibytesOnTakesWholeHugePages) {
  Ledger ledger(kGiB);
  const auto buffer = make_buffer(ledger, Tag::kWeights, 3 * kMiB, "large");
  ASSERT_TRUE(buffer);
  EXPECT_EQ(address(*buffer) % (2 * kMiB), 0U);
  EXPECT_EQ(ledger.held_bytes(Tag::kWeights), 4 * kMiB);
  EXPECT_EQ(ledger.held_bytes(Tag::kPageTables), 8192U);
}

TEST(Buffer, CostIsWhatTheLedgerSees) {
  for (const std::uint64_t bytes :
       {0UL, 1UL, 4096UL, 4097UL, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB}) {
    Ledger ledger(kGiB);
    const auto buffer = make_buffer(ledger, Tag::kKvCache, bytes, "cost");
    ASSERT_TRUE(buffer);
    EXPECT_EQ(ledger.held_bytes(Tag::kKvCache), buffer_cost(bytes).tag_bytes) << bytes;
    EXPECT_EQ(ledger.held_bytes(Tag::kPageTables), buffer_cost(bytes).page_table_bytes) << bytes;
  }
}

TEST(Buffer, HoldsNothingWhenEitherReservationIsRefused) {
  for (std::uint64_t k = 0; k < 2; ++k) {
    FailingLedger ledger(kGiB, k);
    const auto buffer = make_buffer(ledger, Tag::kWeights, kMiB, "refused");
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, Code::kOverBudget);
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST(Buffer, BeginsAsZerosAndMovesItsBytes) {
  Ledger ledger(kMiB);
  auto buffer = make_buffer(ledger, Tag::kScratch, 100, "move");
  ASSERT_TRUE(buffer);
  EXPECT_TRUE(std::all_of(buffer->bytes().begin(), buffer->bytes().end(),
                          [](std::byte byte) { return byte == std::byte{}; }));
  buffer->mutate()[7] = std::byte{9};
  Buffer moved = std::move(*buffer);
  EXPECT_EQ(moved.bytes()[7], std::byte{9});
  moved = Buffer();
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST(BufferDeathTest, SealedBytesCannotBeWritten) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Ledger ledger(kMiB);
  auto buffer = make_buffer(ledger, Tag::kWeights, 100, "sealed");
  ASSERT_TRUE(buffer);
  std::byte* const data = buffer->mutate().data();
  ASSERT_TRUE(buffer->seal());
  EXPECT_TRUE(buffer->sealed());
  EXPECT_DEATH(*data = std::byte{1}, "");
  EXPECT_DEATH(buffer->mutate(), "sealed");
}

}  // namespace
}  // namespace lode::memory
