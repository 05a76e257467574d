#include "lode/io/read_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>

#include "lode/io/test_source.h"
#include "lode/memory/held_probe.h"
#include "tests/support/faulty_system_calls.h"

namespace lode::io {
namespace {

using testing_support::FaultySystemCalls;
using Call = FaultySystemCalls::Call;

class EveryEngine : public testing::TestWithParam<IoKind> {
 protected:
  EveryEngine() : source_(testing::TempDir() + "lode_every_engine_" + name()) {}

  static std::string name() {
    std::string text = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(text.begin(), text.end(), '/', '_');
    return text;
  }
  bool is_uring() const { return GetParam() == IoKind::kUring; }
  Call read_call() const { return is_uring() ? Call::kUringRead : Call::kRead; }

  std::unique_ptr<ReadEngine> engine(std::uint32_t num_threads = 3) {
    const SourceFile file = stamp(source_.path());
    auto made = make_read_engine(std::span(&file, 1),
                                 {.kind = GetParam(), .num_threads = num_threads}, calls_);
    EXPECT_TRUE(made);
    return made ? *std::move(made) : nullptr;
  }

  // Reads ranges all over the file, all at once, and looks at every byte.
  void expect_whole(ReadEngine& reader, bool owns_blocks) {
    const std::uint64_t bytes = source_.bytes();
    const std::pair<std::uint64_t, std::uint64_t> ranges[] = {{0, 1},
                                                              {1, 70'001},
                                                              {4095, 2},
                                                              {8 * 4096, 8 * 4096},
                                                              {8191, 1},
                                                              {kMiB + 17, 3 * kMiB},
                                                              {bytes - 123, 123},
                                                              {bytes - 70'001, 70'001},
                                                              {4096, 512},
                                                              {2 * kMiB, 2 * kMiB},
                                                              {777, 0}};
    Blocks blocks(16 * kMiB);
    std::vector<std::span<std::byte>> outs;
    for (const auto& [offset, size] : ranges) {
      outs.push_back(blocks.take(offset, size));
      reader.submit({0, offset, outs.back(), outs.size() - 1, owns_blocks});
    }
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const ReadCompletion done = reader.wait();
      ASSERT_TRUE(done.status) << to_string(done.status.error());
      expect_bytes(outs[done.ticket], ranges[done.ticket].first);
      EXPECT_TRUE(blocks.untouched_after(outs[done.ticket]));
    }
  }

  FaultySystemCalls calls_;
  TestSource source_;
};

TEST_P(EveryEngine, BringsEveryRangeWhole) {
  const auto reader = engine();
  expect_whole(*reader, true);
  expect_whole(*reader, false);
  EXPECT_TRUE(reader->finish());
  EXPECT_THAT(reader->description(), testing::StartsWith(std::string(io::name(GetParam()))));
  EXPECT_GT(reader->bytes_read().at(0), 10 * kMiB);
}

TEST_P(EveryEngine, ChangesNoByteBesideARangeThatHasNotItsBlocks) {
  const auto reader = engine();
  Blocks blocks(kMiB);
  const auto out = blocks.take(100, 8000);
  ASSERT_TRUE(read_one(*reader, 100, out, false));
  expect_bytes(out, 100);
  EXPECT_EQ(blocks.all()[99], Blocks::kUntouched);
  EXPECT_EQ(blocks.all()[8100], Blocks::kUntouched);
}

TEST_P(EveryEngine, BringsRangesToMemoryThatLiesOtherwise) {
  const auto reader = engine();
  std::vector<std::byte> out(100'003);
  ASSERT_TRUE(read_one(*reader, 12'345, std::span(out).subspan(1), true));
  expect_bytes(std::span(out).subspan(1), 12'345);
}

TEST_P(EveryEngine, LeavesNothingInThePageCacheThatWasNotThere) {
  if (*memory::resident_bytes(source_.path()) != 0) GTEST_SKIP() << "pages stay: NOT MEASURED";
  const auto reader = engine();
  expect_whole(*reader, true);
  EXPECT_EQ(*memory::resident_bytes(source_.path()), 0U);
  expect_whole(*reader, false);
  EXPECT_EQ(*memory::resident_bytes(source_.path()), 0U);
}

// Ranges that share pages, at once and by many threads: the last reader of a page drops it.
TEST_P(EveryEngine, LeavesNothingOfRangesThatOverlap) {
  if (*memory::resident_bytes(source_.path()) != 0) GTEST_SKIP() << "pages stay: NOT MEASURED";
  const auto reader = engine(4);
  std::vector<std::vector<std::byte>> outs(64, std::vector<std::byte>(30'000));
  for (std::size_t i = 0; i < outs.size(); ++i) reader->submit({0, 10'000 * i, outs[i], i});
  for (std::size_t i = 0; i < outs.size(); ++i) ASSERT_TRUE(reader->wait().status);
  for (std::size_t i = 0; i < outs.size(); ++i) expect_bytes(outs[i], 10'000 * i);
  EXPECT_EQ(*memory::resident_bytes(source_.path()), 0U);
}

TEST_P(EveryEngine, KeepsThePagesThatWereThere) {
  if (*memory::resident_bytes(source_.path()) != 0) GTEST_SKIP() << "pages stay: NOT MEASURED";
  testing_support::bring_into_page_cache(source_.path(), kMiB, 2 * kMiB);
  testing_support::bring_into_page_cache(source_.path(), 3 * kMiB + 8192, 3 * kMiB + 16'384);
  const std::uint64_t before = *memory::resident_bytes(source_.path());
  ASSERT_EQ(before, kMiB + 8192);
  const auto reader = engine();
  expect_whole(*reader, true);
  expect_whole(*reader, false);
  EXPECT_TRUE(reader->finish());
  EXPECT_EQ(*memory::resident_bytes(source_.path()), before);
}

TEST_P(EveryEngine, GoesOnAfterInterruptionsAndShortReads) {
  for (const std::uint64_t most : {1UL, 1000UL, 4096UL, 5000UL, 300'000UL}) {
    const std::uint64_t times = most < 4096 ? 40 : FaultySystemCalls::kAlways;
    calls_.add({.call = read_call(), .times = times, .most_bytes = most});
    calls_.add({.call = read_call(), .first = 2, .times = 3, .answer = -EINTR});
    calls_.add({.call = read_call(), .first = 9, .times = 2, .answer = -EAGAIN});
    const auto reader = engine();
    expect_whole(*reader, true);
    expect_whole(*reader, false);
    calls_.clear();
  }
}

TEST_P(EveryEngine, SaysWhichFileAndWhereTheSystemRefusesToRead) {
  calls_.add({.call = read_call(), .answer = -EIO});
  const auto reader = engine();
  Blocks blocks(kMiB);
  const Status status = read_one(*reader, 12'345, blocks.take(12'345, 50'000), true);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kIo);
  EXPECT_EQ(status.error().thing, source_.path());
  EXPECT_THAT(to_string(status.error()), testing::HasSubstr("offset 12345"));
  EXPECT_TRUE(read_one(*reader, 0, blocks.take(0, 5000), true));  // and goes on
}

TEST_P(EveryEngine, ReadsThroughTheCacheWhereADirectReadIsRefused) {
  if (GetParam() == IoKind::kBuffered) GTEST_SKIP() << "it makes none";
  calls_.add({.call = read_call(), .answer = -EINVAL});
  const auto reader = engine();
  expect_whole(*reader, true);
  EXPECT_THAT(reader->description(),
              testing::HasSubstr("1 of 1 files only through the page cache"));
  EXPECT_EQ(*memory::resident_bytes(source_.path()), 0U);
}

TEST_P(EveryEngine, ReadsThroughTheCacheWhereTheFileSystemHasNoDirectReads) {
  if (GetParam() == IoKind::kBuffered) GTEST_SKIP() << "it makes none";
  for (const FaultySystemCalls::Fault& fault :
       {FaultySystemCalls::Fault{.call = Call::kOpen, .answer = -EINVAL},
        FaultySystemCalls::Fault{.call = Call::kAlignment, .answer = 65'536}}) {
    calls_.clear();
    calls_.add(fault);
    const auto reader = engine();
    expect_whole(*reader, true);
    EXPECT_THAT(reader->description(), testing::HasSubstr("only through the page cache"));
  }
}

TEST_P(EveryEngine, WaitsForADiskThatIsSlow) {
  calls_.add({.call = read_call(), .times = 5, .delay_us = 20'000});
  const auto reader = engine();
  expect_whole(*reader, true);
}

TEST_P(EveryEngine, SaysThatAFileWasCutShort) {
  const auto reader = engine();
  Blocks blocks(kMiB);
  ASSERT_TRUE(read_one(*reader, 0, blocks.take(0, 4096), true));
  std::filesystem::resize_file(source_.path(), 1000);
  for (const bool owns_blocks : {true, false}) {
    const Status status = read_one(*reader, 500, blocks.take(500, 9000), owns_blocks);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kSourceChanged);
    EXPECT_EQ(status.error().thing, source_.path());
  }
  EXPECT_EQ(reader->finish().error().code, Code::kSourceChanged);
}

TEST_P(EveryEngine, NoticesAFileThatWasReplacedMeanwhile) {
  const auto reader = engine();
  std::filesystem::rename(source_.path(), source_.path() + ".old");
  source_.write();
  const Status status = reader->finish();
  std::filesystem::remove(source_.path() + ".old");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kSourceChanged);
}

TEST_P(EveryEngine, NoticesAFileThatWasWrittenOrTakenAwayMeanwhile) {
  const auto reader = engine();
  source_.write();
  EXPECT_EQ(reader->finish().error().code, Code::kSourceChanged);
  const auto again = engine();
  std::filesystem::remove(source_.path());
  EXPECT_EQ(again->finish().error().code, Code::kSourceChanged);
}

TEST_P(EveryEngine, OpensOnlyTheFileThatIsMeant) {
  const SourceFile file = stamp(source_.path());
  const auto code = [](const SourceFile& meant) {
    const auto made = make_read_engine(std::span(&meant, 1), {.kind = GetParam()});
    return made ? Code::kOther : made.error().code;
  };
  SourceFile other = file;
  other.bytes += 1;
  EXPECT_EQ(code(other), Code::kSourceChanged);
  other = file;
  other.inode += 1;
  EXPECT_EQ(code(other), Code::kSourceChanged);
  other = file;
  other.mtime_ns += 1;
  EXPECT_EQ(code(other), Code::kSourceChanged);
  other = file;
  other.path += ".gone";
  EXPECT_EQ(code(other), Code::kSourceChanged);
}

TEST_P(EveryEngine, EndsCleanlyWithReadsStillWaiting) {
  auto reader = engine(1);
  Blocks blocks(8 * kMiB);
  const auto out = blocks.take(0, 4 * kMiB);
  for (int i = 0; i < 50; ++i) reader->submit({0, 0, out, 0, true});
  reader.reset();
  EXPECT_LE(*memory::resident_bytes(source_.path()), source_.bytes());
}

TEST_P(EveryEngine, NeedsOneDescriptorAFileForReadsOfWholeBlocks) {
  const auto reader = engine();
  Blocks blocks(8 * kMiB);
  for (const std::uint64_t offset : {0UL, 100UL, 5'000UL, 3 * kMiB}) {
    ASSERT_TRUE(read_one(*reader, offset, blocks.take(offset, 100'000), true));
  }
  EXPECT_EQ(calls_.count(Call::kOpen), 1U);
}

INSTANTIATE_TEST_SUITE_P(Io, EveryEngine,
                         testing::Values(IoKind::kUring, IoKind::kThreads, IoKind::kBuffered),
                         [](const auto& engine) { return std::string(name(engine.param)); });

}  // namespace
}  // namespace lode::io
