#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "lode/base/bytes.h"
#include "lode/io/read_engine.h"
#include "lode/memory/held_probe.h"

namespace lode::io {
namespace {

SourceFile stamp(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  const auto to_ns = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
  };
  return {path,
          status.st_dev,
          status.st_ino,
          static_cast<std::uint64_t>(status.st_size),
          to_ns(status.st_mtim),
          to_ns(status.st_ctim)};
}

std::byte expected(std::uint64_t offset) {
  return static_cast<std::byte>(offset * 7 + offset / 256);
}

class ThreadsEngine : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "lode_threads_engine_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    write(5 * kMiB + 123);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(std::uint64_t bytes) const {
    std::string text(bytes, '\0');
    for (std::uint64_t i = 0; i < bytes; ++i) text[i] = std::to_integer<char>(expected(i));
    std::ofstream(path_, std::ios::binary) << text;
    const int file = ::open(path_.c_str(), O_RDONLY);
    ::fsync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }

  std::unique_ptr<ReadEngine> engine(std::uint32_t num_threads = 3) const {
    const std::vector<SourceFile> files = {stamp(path_)};
    auto made = make_threads_engine(files, num_threads);
    EXPECT_TRUE(made);
    return *std::move(made);
  }

  std::string path_;
};

TEST_F(ThreadsEngine, BringsEveryRangeWhole) {
  const auto reader = engine();
  std::map<std::uint64_t, std::vector<std::byte>> out;
  for (const std::uint64_t offset : {0UL, 1UL, 4095UL, 8 * 4096UL, kMiB + 17, 5 * kMiB}) {
    out[offset].resize(offset == 5 * kMiB ? 123 : 70'001);
    reader->submit({0, offset, out[offset], offset});
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const ReadCompletion done = reader->wait();
    ASSERT_TRUE(done.status);
    const auto& bytes = out.at(done.ticket);
    for (std::size_t b = 0; b < bytes.size(); ++b) {
      ASSERT_EQ(bytes[b], expected(done.ticket + b)) << done.ticket << " + " << b;
    }
  }
  EXPECT_EQ(reader->bytes_read(), (std::vector<std::uint64_t>{5 * 70'001 + 123}));
  EXPECT_TRUE(reader->finish());
}

TEST_F(ThreadsEngine, LeavesNothingInThePageCache) {
  if (*memory::resident_bytes(path_) != 0) GTEST_SKIP() << "pages stay here: NOT MEASURED";
  const auto reader = engine();
  std::vector<std::byte> out(kMiB);
  for (std::uint64_t offset = 100; offset < 4 * kMiB; offset += out.size()) {
    reader->submit({0, offset, out, 0});
    ASSERT_TRUE(reader->wait().status);
    EXPECT_LE(*memory::resident_bytes(path_), 128 * kKiB);
  }
  EXPECT_TRUE(reader->finish());
  EXPECT_EQ(*memory::resident_bytes(path_), 0U);
}

TEST_F(ThreadsEngine, SaysWhereAFileThatWasCutEnds) {
  const auto reader = engine();
  std::filesystem::resize_file(path_, 1000);
  std::vector<std::byte> out(2000);
  reader->submit({0, 500, out, 7});
  const ReadCompletion done = reader->wait();
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.ticket, 7U);
  EXPECT_EQ(done.status.error().code, Code::kSourceChanged);
  EXPECT_EQ(done.status.error().thing, path_);
  EXPECT_THAT(done.status.error().found, testing::HasSubstr("byte 1000"));
}

TEST_F(ThreadsEngine, NoticesAFileThatWasReplacedMeanwhile) {
  const auto reader = engine();
  std::filesystem::rename(path_, path_ + ".old");
  write(5 * kMiB + 123);
  const Status status = reader->finish();
  std::filesystem::remove(path_ + ".old");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kSourceChanged);
}

TEST_F(ThreadsEngine, NoticesAFileThatWasWrittenMeanwhile) {
  const auto reader = engine();
  write(5 * kMiB + 123);
  EXPECT_EQ(reader->finish().error().code, Code::kSourceChanged);
}

TEST_F(ThreadsEngine, OpensOnlyTheFileThatIsMeant) {
  SourceFile file = stamp(path_);
  const auto code = [](const SourceFile& meant) {
    const auto made = make_threads_engine(std::span(&meant, 1), 1);
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

TEST_F(ThreadsEngine, EndsCleanlyWithReadsStillWaiting) {
  auto reader = engine(1);
  std::vector<std::byte> out(4 * kMiB);
  for (int i = 0; i < 50; ++i) reader->submit({0, 0, out, 0});
  reader.reset();
}

}  // namespace
}  // namespace lode::io
