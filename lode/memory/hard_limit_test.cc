#include "lode/memory/hard_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "lode/base/bytes.h"
#include "lode/memory/buffer.h"
#include "tests/support/sanitizers.h"

namespace lode::memory {
namespace {

// A limit is for good, so each case has a process of its own that tells by its exit status.

[[noreturn]] void take_a_buffer(std::uint64_t bytes) {
  Ledger ledger(kGiB);  // which has plenty: it is the kernel that refuses
  const auto held = data_bytes();
  if (!held || !set_hard_limit(*held + 64 * kMiB)) std::_Exit(99);
  const auto buffer = make_buffer(ledger, Tag::kScratch, bytes, "a block");
  std::_Exit(buffer ? 0 : info(buffer.error().code).exit_status);
}

TEST(HardLimit, LetsThroughWhatIsBelowIt) {
  if (testing_support::kSanitized) GTEST_SKIP() << "a sanitizer maps terabytes";
  EXPECT_EXIT(take_a_buffer(32 * kMiB), testing::ExitedWithCode(0), "");
}

TEST(HardLimit, MakesABufferBeyondItTheErrorOfAViolatedBudget) {
  if (testing_support::kSanitized) GTEST_SKIP() << "a sanitizer maps terabytes";
  EXPECT_EXIT(take_a_buffer(80 * kMiB), testing::ExitedWithCode(9), "");
}

[[noreturn]] void allocate_past_the_limit() {
  const auto held = data_bytes();
  if (!held || !set_hard_limit(*held + 8 * kMiB)) std::_Exit(99);
  try {
    const std::unique_ptr<char[]> block(new char[64 * kMiB]);
    std::_Exit(block[0] == 1 ? 1 : 0);
  } catch (const std::bad_alloc&) {
    std::_Exit(info(code_of_refused_memory(Code::kOther)).exit_status);
  }
}

TEST(HardLimit, RefusesOrdinaryAllocationsToo) {
  if (testing_support::kSanitized) GTEST_SKIP() << "a sanitizer maps terabytes";
  EXPECT_EXIT(allocate_past_the_limit(), testing::ExitedWithCode(9), "");
}

TEST(HardLimit, IsNoneUntilItIsSet) {
  EXPECT_FALSE(hard_limit_bytes());
  EXPECT_EQ(code_of_refused_memory(Code::kIo), Code::kIo);
  const auto held = data_bytes();
  ASSERT_TRUE(held);
  EXPECT_GT(*held, 0U);
}

}  // namespace
}  // namespace lode::memory
