#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "lode/prepared/prepare_test_support.h"
#include "lode/prepared/test_faulty_calls.h"
#include "tests/support/sanitizers.h"

namespace lode::prepared {
namespace {

constexpr testing_support::SyntheticShape kSmall{.storage = ExpertStorage::kNvfp4,
                                                 .layers = 1,
                                                 .experts = 2,
                                                 .hidden = 128,
                                                 .intermediate = 64,
                                                 .vocab = 64};

struct Fault {
  int error;
  bool stays;
  Code code;
  bool consume = false;
};

class EveryCall : public testing::TestWithParam<Fault> {};

// Whatever call it is that fails: a clean code, nothing that passes for a prepared checkpoint, and
// the same call again brings it to its end, equal in every bit.
TEST_P(EveryCall, ThatFailsEndsInAClearCodeAndIsGoneOnWith) {
  const Fault fault = GetParam();
  const bool full = testing::UnitTest::GetInstance()->current_test_suite()->name()[0] == 'F';
  if (full && std::getenv("LODE_FULL_TESTS") == nullptr) GTEST_SKIP() << "LODE_FULL_TESTS=1 does";
  const FoldersInMemory in_memory;
  PreparedModel model(kSmall);
  std::set<std::string> seen;
  const auto shard = testing_support::read_text(model.shard());
  // Sanitizers look at a seventh of the many calls: not at each kind of call.
  const std::uint64_t step = fault.consume && testing_support::kSanitized ? 7 : 1;
  for (std::uint64_t k = 0;; k += step) {
    FaultyCalls calls(k, fault.error, fault.stays);
    const auto report = model.prepare({.consume = fault.consume}, calls);
    seen.insert(calls.seen().begin(), calls.seen().end());
    if (!calls.refused()) break;
    if (!report) {
      EXPECT_EQ(report.error().code, fault.code) << k << to_string(report.error());
      if (fault.consume) {
        model.reindex();
        model.replan_sources();
      }
      const auto again = model.prepare({.consume = fault.consume});
      ASSERT_TRUE(again) << k << " " << to_string(again.error());
    }
    model.expect_whole();
    std::filesystem::remove_all(model.out());
    if (!fault.consume) continue;
    std::filesystem::remove(model.source_folder() / "lode-consumed.json");
    std::ofstream(model.shard(), std::ios::binary) << shard;
    model.reindex();
    model.replan_sources();
  }
  model.expect_whole();
  std::set<std::string> all{"pwrite", "allocate", "truncate",    "sync_data", "sync",
                            "rename", "unlink",   "make_folder", "open"};
  if (fault.consume) all.insert("punch_hole");
  if (step == 1) {
    EXPECT_EQ(seen, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Prepare, EveryCall,
                         testing::Values(Fault{ENOSPC, false, Code::kNoSpace},
                                         Fault{EIO, true, Code::kIo},
                                         Fault{EIO, false, Code::kIo, true}));
INSTANTIATE_TEST_SUITE_P(Full, EveryCall,
                         testing::Values(Fault{ENOSPC, true, Code::kNoSpace},
                                         Fault{EIO, false, Code::kIo},
                                         Fault{EDQUOT, false, Code::kNoSpace},
                                         Fault{EROFS, true, Code::kIo},
                                         Fault{ENOSPC, false, Code::kNoSpace, true}));

TEST(Prepare, InterruptedCallsAndShortCountsChangeNothing) {
  class Slow final : public io::SystemCalls {
   public:
    std::int64_t pwrite(int file, std::span<const std::byte> bytes, std::uint64_t at) override {
      if (++calls_ % 2 == 1) return -EINTR;
      const auto part = bytes.first(std::min<std::size_t>(bytes.size(), 8192));
      const std::int64_t wrote = io::SystemCalls::pwrite(file, part, at);
      return wrote > 100 && calls_ % 4 == 0 ? wrote - 100 : wrote;
    }
    int sync_data(int file) override {
      return ++calls_ % 2 == 1 ? -EINTR : io::SystemCalls::sync_data(file);
    }
    int allocate(int file, std::uint64_t at, std::uint64_t bytes) override {
      return ++calls_ % 2 == 1 ? -EINTR : io::SystemCalls::allocate(file, at, bytes);
    }

   private:
    std::atomic<std::uint64_t> calls_ = 0;
  } calls;
  const PreparedModel model(kSmall);
  const auto report = model.prepare({}, calls);
  ASSERT_TRUE(report) << to_string(report.error());
  model.expect_whole();
}

TEST(Prepare, WhereThePageCacheCannotBePassedLeavesLittleInIt) {
  class NoDirect final : public io::SystemCalls {
   public:
    int open(const std::string& path, int flags, unsigned mode) override {
      return (flags & O_DIRECT) != 0 ? -EINVAL : io::SystemCalls::open(path, flags, mode);
    }
    int allocate(int, std::uint64_t, std::uint64_t) override { return -EOPNOTSUPP; }
  } calls;
  const PreparedModel model({.storage = ExpertStorage::kBf16,
                             .layers = 2,
                             .experts = 12,
                             .hidden = 512,
                             .intermediate = 512});
  const auto report = model.prepare({}, calls);
  ASSERT_TRUE(report) << to_string(report.error());
  model.expect_whole();
}

}  // namespace
}  // namespace lode::prepared
