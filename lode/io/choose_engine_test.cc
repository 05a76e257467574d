#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "lode/io/read_engine.h"
#include "lode/io/test_source.h"
#include "lode/memory/held_probe.h"
#include "tests/support/faulty_system_calls.h"

namespace lode::io {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::FaultySystemCalls;
using Call = FaultySystemCalls::Call;

class ChosenEngine : public testing::Test {
 protected:
  ChosenEngine()
      : source_(testing::TempDir() + "lode_chosen_engine_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  std::string chosen() {
    const SourceFile file = stamp(source_.path());
    const auto made = make_read_engine(std::span(&file, 1), {}, calls_);
    return made ? (*made)->description() : to_string(made.error());
  }

  FaultySystemCalls calls_;
  TestSource source_;
};

TEST_F(ChosenEngine, IsUringForLocalFilesThatAreNotInThePageCache) {
  if (*memory::resident_bytes(source_.path()) != 0) GTEST_SKIP() << "pages stay: NOT MEASURED";
  EXPECT_THAT(chosen(), testing::AnyOf(StartsWith("uring"), HasSubstr("io_uring refused")));
}

TEST_F(ChosenEngine, CopiesWhatIsInThePageCache) {
  testing_support::bring_into_page_cache(source_.path(), 0, source_.bytes());
  EXPECT_THAT(chosen(), StartsWith("threads"));
  EXPECT_THAT(chosen(), HasSubstr("100 % of the files are in the page cache"));
}

TEST_F(ChosenEngine, IsThreadsWhereUringIsForbidden) {
  calls_.add({.call = Call::kAllowUring, .times = FaultySystemCalls::kAlways, .answer = -EPERM});
  EXPECT_THAT(chosen(), StartsWith("threads"));
  EXPECT_THAT(chosen(), HasSubstr("io_uring refused: Operation not permitted"));
}

TEST_F(ChosenEngine, IsThreadsWhereAQueueOfUringCannotBeEntered) {
  calls_.add({.call = Call::kEnterUring, .times = FaultySystemCalls::kAlways, .answer = -EPERM});
  EXPECT_THAT(chosen(), StartsWith("threads"));
  EXPECT_THAT(chosen(), HasSubstr("io_uring refused: Operation not permitted"));
}

TEST_F(ChosenEngine, IsAnErrorWhereUringIsForbiddenAndAskedFor) {
  calls_.add({.call = Call::kAllowUring, .answer = -ENOSYS});
  const SourceFile file = stamp(source_.path());
  const auto made = make_read_engine(std::span(&file, 1), {.kind = IoKind::kUring}, calls_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
  EXPECT_THAT(made.error().hint, HasSubstr("--io threads"));
}

TEST_F(ChosenEngine, IsBufferedWhereTheFileSystemHasNoDirectReads) {
  calls_.add({.call = Call::kOpen, .answer = -EINVAL});
  EXPECT_THAT(chosen(), StartsWith("buffered"));
}

TEST_F(ChosenEngine, IsBufferedOnANetworkFileSystem) {
  constexpr std::int64_t kNfs = 0x6969;  // statfs(2)
  calls_.add({.call = Call::kFileSystem, .times = FaultySystemCalls::kAlways, .answer = kNfs});
  EXPECT_THAT(chosen(), StartsWith("buffered"));
  EXPECT_THAT(chosen(), HasSubstr("network"));
  const SourceFile file = stamp(source_.path());
  EXPECT_TRUE(on_network(std::span(&file, 1), calls_));
  EXPECT_FALSE(on_network(std::span(&file, 1)));
}

TEST(IoKind, HasANameThatItIsAskedForBy) {
  for (const IoKind kind : {IoKind::kAuto, IoKind::kUring, IoKind::kThreads, IoKind::kBuffered}) {
    EXPECT_EQ(*parse_io_kind(name(kind)), kind);
  }
  EXPECT_EQ(parse_io_kind("mmap").error().code, Code::kUsage);
}

}  // namespace
}  // namespace lode::io
