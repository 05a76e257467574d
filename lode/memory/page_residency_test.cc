#include "lode/memory/page_residency.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "lode/memory/held_probe.h"
#include "tests/support/page_cache.h"

namespace lode::memory {
namespace {

class Residency : public testing::Test {
 protected:
  Residency()
      : path_(testing::TempDir() + "lode_residency_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::ofstream(path_, std::ios::binary) << std::string(kBytes, 'x');
    testing_support::drop_from_page_cache(path_);
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  ~Residency() override {
    ::close(descriptor_);
    std::filesystem::remove(path_);
  }

  static constexpr std::uint64_t kBytes = 10 * 4096 + 5;  // eleven pages
  std::string path_;
  int descriptor_ = -1;
};

TEST_F(Residency, TellsThePagesThatWereBroughtFromThoseThatWereNot) {
  const auto residency = PageResidency::of(descriptor_, kBytes);
  ASSERT_TRUE(residency);
  std::array<unsigned char, 13> pages{};
  ASSERT_TRUE(residency->look(0, pages));
  if (pages != std::array<unsigned char, 13>{}) GTEST_SKIP() << "pages stay: NOT MEASURED";
  testing_support::bring_into_page_cache(path_, 2 * 4096, 4 * 4096);
  testing_support::bring_into_page_cache(path_, kBytes - 1, kBytes);
  ASSERT_TRUE(residency->look(0, pages));
  EXPECT_EQ(pages, (std::array<unsigned char, 13>{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  ASSERT_TRUE(residency->look(3, std::span(pages).first(2)));
  EXPECT_EQ(pages[0], 1);
  EXPECT_EQ(pages[1], 0);
  ASSERT_TRUE(residency->look(100, std::span(pages).first(1)));  // beyond the end
  EXPECT_EQ(pages[0], 0);
}

TEST_F(Residency, IsNotToldOfFilesThatAreEmptyOrNone) {
  EXPECT_FALSE(PageResidency::of(descriptor_, 0));
  EXPECT_FALSE(PageResidency::of(-1, 4096));
}

// The kernel would call every page of it resident.
TEST_F(Residency, IsNotToldToThoseWhoMayNotWriteTheFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user's file: NOT MEASURED";
  constexpr uid_t kNobody = 65'534;
  ::chmod(path_.c_str(), 0644);
  ASSERT_EQ(::seteuid(kNobody), 0);
  const bool told = PageResidency::of(descriptor_, kBytes).has_value();
  const auto counted = resident_bytes(path_);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_FALSE(told);
  ASSERT_FALSE(counted);
  EXPECT_EQ(counted.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace lode::memory
