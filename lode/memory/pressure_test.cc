#include "lode/memory/pressure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "lode/base/bytes.h"
#include "tests/support/checkpoint_files.h"

namespace lode::memory {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kTotal = 16 * kGiB;  // its floor: 64 MiB

PressureSample sample(std::uint64_t at_ms, std::uint64_t available, std::uint64_t to_come,
                      std::optional<std::uint64_t> stalled_ms = std::nullopt) {
  PressureSample made;
  made.at_us = at_ms * 1000;
  made.to_come_bytes = to_come;
  made.machine = {kTotal, available, {}};
  if (stalled_ms) made.stalled_us = *stalled_ms * 1000;
  return made;
}

PressureSample in_group(std::uint64_t at_ms, std::uint64_t used, std::uint64_t kills,
                        std::uint64_t to_come) {
  PressureSample made = sample(at_ms, 8 * kGiB, to_come);
  made.machine.cgroups = {{"/job", 2 * kGiB, used, kills}};
  return made;
}

struct Case {
  const char* what;
  std::vector<PressureSample> window;
  const char* seen;  // part of the reason; nullptr: the load goes on
};

const Case kCases[] = {
    {"nothing was read yet", {}, nullptr},
    {"there is plenty", {sample(0, 8 * kGiB, kGiB), sample(200, 8 * kGiB, kGiB)}, nullptr},
    {"below the floor, twice",
     {sample(0, 63 * kMiB, kMiB), sample(200, 60 * kMiB, kMiB)},
     "MemAvailable 60.0 MiB, below the floor of 64.0 MiB"},
    {"below the floor, for the first time",
     {sample(0, 8 * kGiB, kMiB), sample(200, 60 * kMiB, kMiB)},
     nullptr},
    {"below the floor with the only reading", {sample(0, kMiB, kGiB)}, nullptr},
    {"at the floor", {sample(0, 64 * kMiB, kMiB), sample(200, 64 * kMiB, kMiB)}, nullptr},
    {"below the floor, but everything is there already",
     {sample(0, kMiB, 0), sample(200, kMiB, 0)},
     nullptr},
    {"what is to come has not fitted for 300 ms",
     {sample(0, kGiB, 2 * kGiB), sample(150, kGiB, 2 * kGiB), sample(300, kGiB, 2 * kGiB)},
     "2.00 GiB still to come, only 1.00 GiB free (MemAvailable)"},
    {"not for 299 ms yet",
     {sample(0, kGiB, 2 * kGiB), sample(150, kGiB, 2 * kGiB), sample(299, kGiB, 2 * kGiB)},
     nullptr},
    {"it fitted between",
     {sample(0, kGiB, 2 * kGiB), sample(150, 3 * kGiB, 2 * kGiB), sample(300, kGiB, 2 * kGiB)},
     nullptr},
    {"only the slack of a plan is missing",
     {sample(0, kGiB, kGiB + 32 * kMiB), sample(400, kGiB, kGiB + 32 * kMiB)},
     nullptr},
    {"a control group has less left than the machine",
     {in_group(0, kGiB, 0, kGiB + 40 * kMiB), in_group(400, kGiB, 0, kGiB + 40 * kMiB)},
     "only 1.00 GiB free (cgroup /job)"},
    {"the kernel has killed in our group",
     {in_group(0, kGiB, 3, kMiB), in_group(200, kGiB, 4, kMiB)},
     "killed a process of cgroup /job"},
    {"it had killed before we came",
     {in_group(0, kGiB, 3, kMiB), in_group(200, kGiB, 3, kMiB)},
     nullptr},
    {"near the floor everything waits",
     {sample(0, 500 * kMiB, kMiB, 10), sample(1000, 500 * kMiB, kMiB, 350)},
     "waited for memory for 340 of the last 1000 ms"},
    {"near the floor little waits",
     {sample(0, 500 * kMiB, kMiB, 10), sample(1000, 500 * kMiB, kMiB, 340)},
     nullptr},
    {"everything waits, for huge pages maybe, but there is plenty",
     {sample(0, 8 * kGiB, kMiB, 0), sample(1000, 8 * kGiB, kMiB, 1000)},
     nullptr},
    {"the window is too short to tell",
     {sample(0, 500 * kMiB, kMiB, 0), sample(100, 500 * kMiB, kMiB, 100)},
     nullptr},
    {"the kernel has no PSI",
     {sample(0, 500 * kMiB, kMiB), sample(1000, 500 * kMiB, kMiB)},
     nullptr},
};

TEST(Pressure, FollowsTheTable) {
  for (const Case& c : kCases) {
    const auto seen = pressure_seen(c.window);
    EXPECT_EQ(seen.has_value(), c.seen != nullptr) << c.what << ": " << seen.value_or("");
    if (!seen || c.seen == nullptr) continue;
    EXPECT_THAT(*seen, HasSubstr(c.seen)) << c.what;
  }
}

TEST(Pressure, ReadsHowLongEverythingWaited) {
  const char* both =
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
      "full avg10=1.50 avg60=0.00 avg300=0.00 total=123456\n";
  EXPECT_EQ(parse_stalled_us(both), 123456U);
  EXPECT_EQ(parse_stalled_us("full avg10=0.00 total=5\n"), 5U);
  EXPECT_EQ(parse_stalled_us("some avg10=0.00 total=7\n"), std::nullopt);
  EXPECT_EQ(parse_stalled_us("full avg10=0.00 total=\n"), std::nullopt);
  EXPECT_EQ(parse_stalled_us(""), std::nullopt);
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Pressure, IsReadOutOfProcAndTheControlGroupsOfBothVersions) {
  const testing_support::TempFolder root;
  write(root.path() / "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 200 kB\n");
  write(root.path() / "proc/pressure/memory", "some total=1\nfull avg10=0.0 total=42\n");
  write(root.path() / "proc/self/cgroup", "4:memory:/old\n0::/new\n");
  const auto v1 = root.path() / "sys/fs/cgroup/memory/old";
  write(v1 / "memory.limit_in_bytes", "4096000\n");
  write(v1 / "memory.usage_in_bytes", "5000\n");
  write(v1 / "memory.stat", "total_inactive_file 1000\n");
  write(v1 / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  const auto v2 = root.path() / "sys/fs/cgroup/new";
  write(v2 / "memory.max", "8192000\n");
  write(v2 / "memory.current", "7000\n");
  write(v2 / "memory.stat", "anon 5\ninactive_file 2000\n");
  write(v2 / "memory.events", "low 0\nmax 9\noom 2\noom_kill 1\n");
  const auto read = read_pressure(root.path().string());
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->machine.available_bytes, 200 * kKiB);
  EXPECT_EQ(read->stalled_us, 42U);
  EXPECT_THAT(
      read->machine.cgroups,
      ::testing::UnorderedElementsAre(CgroupMemory{"/sys/fs/cgroup/memory/old", 4096000, 4000, 3},
                                      CgroupMemory{"/sys/fs/cgroup/new", 8192000, 5000, 1}));
}

TEST(Pressure, IsReadOnThisMachineWithOrWithoutPsi) {
  const auto read = read_pressure();
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_GT(read->machine.available_bytes, 0U);
}

TEST(Pressure, CannotBeReadWhereThereIsNoMeminfo) {
  const testing_support::TempFolder root;
  const auto read = read_pressure(root.path().string());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kIo);
}

}  // namespace
}  // namespace lode::memory
