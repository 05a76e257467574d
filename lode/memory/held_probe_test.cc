#include "lode/memory/held_probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/memory/buffer.h"
#include "tests/support/sanitizers.h"

namespace lode::memory {
namespace {

// Lines as Linux 6.18 writes them.
constexpr std::string_view kStatus =
    "Name:\tlode\nVmPeak:\t  100000 kB\nVmRSS:\t   31000 kB\nRssAnon:\t   20480 kB\n"
    "RssFile:\t   10496 kB\nRssShmem:\t      24 kB\nVmPTE:\t     140 kB\nThreads:\t1\n";
constexpr std::string_view kRollup =
    "55d0a0000000-7ffd20000000 ---p 00000000 00:00 0   [rollup]\nRss:               31000 kB\n"
    "Pss_Anon:          20500 kB\nPss_File:          10400 kB\nPss_Shmem:            12 "
    "kB\nAnonymous:         20500 kB\n";

TEST(ProcessStatus, CountsAnonymousSharedAndPageTables) {
  EXPECT_EQ(parse_process_status(kStatus),
            (ProcessBytes{20480 * kKiB, 24 * kKiB, 140 * kKiB, 10496 * kKiB}));
}

TEST(ProcessStatus, MissesNoFieldInSilence) {
  for (const std::string_view field : {"RssAnon", "RssShmem", "RssFile", "VmPTE"}) {
    std::string text(kStatus);
    text.replace(text.find(field), field.size(), "Other");
    EXPECT_FALSE(parse_process_status(text)) << field;
  }
  EXPECT_FALSE(parse_process_status("RssAnon: 12\nRssShmem: 1 kB\nVmPTE: 1 kB\n"));
  EXPECT_FALSE(parse_process_status("RssAnon:\nRssShmem: 1 kB\nVmPTE: 1 kB\n"));
  EXPECT_FALSE(parse_process_status(""));
}

TEST(SmapsRollup, CountsAnonymousAndSharedPages) {
  EXPECT_EQ(parse_smaps_rollup(kRollup), (ProcessBytes{20500 * kKiB, 12 * kKiB, 0, 10400 * kKiB}));
  EXPECT_FALSE(parse_smaps_rollup("Rss: 1 kB\n"));
}

TEST(HeldProbe, SeesPagesWhenTheyAreTouchedAndNotBefore) {
  if (testing_support::kSanitized) GTEST_SKIP() << "shadow memory counts as held";
  const auto probe = HeldProbe::make();
  ASSERT_TRUE(probe);
  Ledger ledger(kGiB);
  auto buffer = make_buffer(ledger, Tag::kScratch, 64 * kMiB, "test");
  ASSERT_TRUE(buffer);
  EXPECT_LT(*probe->exact_held_bytes(), 8 * kMiB);
  std::memset(buffer->mutate().data(), 1, 64 * kMiB);
  EXPECT_GE(*probe->exact_held_bytes(), 64 * kMiB);
  // the counters of status lag by up to 64 pages a thread, or a batch a processor
  EXPECT_NEAR(static_cast<double>(*probe->held_bytes()),
              static_cast<double>(*probe->exact_held_bytes()), 4.0 * kMiB);
}

TEST(ResidentBytes, FollowTheFilesPagesInAndOut) {
  const auto path = std::filesystem::path(testing::TempDir()) / "lode_resident_bytes";
  const std::vector<char> bytes(8 * kMiB, 'x');
  std::ofstream(path, std::ios::binary).write(bytes.data(), 8 * kMiB);
  EXPECT_EQ(*resident_bytes(path), 8 * kMiB);
  const int file = ::open(path.c_str(), O_RDONLY);
  ASSERT_EQ(::fsync(file), 0);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  const std::uint64_t left = *resident_bytes(path);
  std::filesystem::remove(path);
  if (left == 8 * kMiB) GTEST_SKIP() << "this file system keeps its pages: NOT MEASURED";
  EXPECT_EQ(left, 0U);
}

TEST(ResidentBytes, OfNoFileAreAnError) {
  EXPECT_EQ(resident_bytes("/nonexistent/file").error().code, Code::kIo);
}

}  // namespace
}  // namespace lode::memory
