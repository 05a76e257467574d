#include "lode/parallel/hardware_threads.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace lode::parallel {
namespace {

TEST(Quota, IsRoundedUpToWholeCpus) {
  EXPECT_EQ(cpus_of_quota("200000 100000"), 2u);
  EXPECT_EQ(cpus_of_quota("150000 100000"), 2u);
  EXPECT_EQ(cpus_of_quota("1000 100000"), 1u);
  EXPECT_EQ(cpus_of_quota("0 100000"), 1u);
}

TEST(Quota, IsNothingWhereThereIsNoneOrNoSense) {
  for (const char* text : {"max 100000", "-1 100000", "", " ", "5", "5 ", "5 0", "5 -1", "5 1 ",
                           "5 x", "99999999999999999999999 1", "5 99999999999999999999999"}) {
    EXPECT_EQ(cpus_of_quota(text), std::nullopt) << text;
  }
}

/// A made-up /proc and /sys in a folder of its own.
class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = testing::TempDir() + "lode_cgroup_" + test->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string root_;
};

TEST_F(Cgroup, OfVersionTwoIsTheTightestUpToTheMount) {
  write("/proc/self/cgroup", "0::/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  write("/sys/fs/cgroup/a/cpu.max", "300000 100000");
  write("/sys/fs/cgroup/cpu.max", "800000 100000");
  EXPECT_EQ(cgroup_cpus(root_), 3u);
}

TEST_F(Cgroup, WhosePathOnlyTheHostKnowsIsStillBoundByTheMount) {
  write("/proc/self/cgroup", "0::/host/only");
  write("/sys/fs/cgroup/cpu.max", "400000 100000");
  EXPECT_EQ(cgroup_cpus(root_), 4u);
}

TEST_F(Cgroup, OfVersionOneHasQuotaAndPeriodInTwoFiles) {
  write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/x\n1:name=systemd:/");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_cpus(root_), 3u);
}

TEST_F(Cgroup, IsNothingWithoutFilesOrLimits) {
  EXPECT_EQ(cgroup_cpus(root_), std::nullopt);
  write("/proc/self/cgroup", "nonsense\n0:\n::\n0::");
  EXPECT_EQ(cgroup_cpus(root_), std::nullopt);
}

TEST(HardwareThreads, AreAtLeastOneAndNoMoreThanTheMachineHas) {
  EXPECT_GE(hardware_threads(), 1u);
  EXPECT_LE(hardware_threads(), std::thread::hardware_concurrency());
}

}  // namespace
}  // namespace lode::parallel
