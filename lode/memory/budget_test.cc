#include "lode/memory/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/base/bytes.h"
#include "tests/support/checkpoint_files.h"

namespace lode::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Case {
  const char* what;
  MachineMemory machine;
  std::optional<std::uint64_t> wanted;
  std::uint64_t limit;
  std::uint64_t floor;
  const char* source;
};

const Case kCases[] = {
    {"a twentieth is left on a middling machine",
     {20 * kGiB, 18 * kGiB, {}},
     std::nullopt,
     17 * kGiB,
     kGiB,
     "MemAvailable"},
    {"at most 6 GiB are left on a large one",
     {1000 * kGiB, 900 * kGiB, {}},
     std::nullopt,
     894 * kGiB,
     6 * kGiB,
     "MemAvailable"},
    {"at least 256 MiB on a small one",
     {2 * kGiB, kGiB, {}},
     std::nullopt,
     768 * kMiB,
     256 * kMiB,
     "MemAvailable"},
    {"never more than half of what is there",
     {2 * kGiB, 100 * kMiB, {}},
     std::nullopt,
     50 * kMiB,
     50 * kMiB,
     "MemAvailable"},
    {"a cgroup that allows less decides",
     {20 * kGiB, 18 * kGiB, {{"/a", 8 * kGiB, 2 * kGiB}}},
     std::nullopt,
     6 * kGiB - 8 * kGiB / 20,
     8 * kGiB / 20,
     "cgroup /a"},
    {"so does an ancestor's",
     {20 * kGiB, 18 * kGiB, {{"/a/b", 10 * kGiB, 0}, {"/a", 4 * kGiB, 3 * kGiB}}},
     std::nullopt,
     kGiB - 256 * kMiB,
     256 * kMiB,
     "cgroup /a"},
    {"a cgroup that allows more does not",
     {20 * kGiB, 18 * kGiB, {{"/a", 100 * kGiB, 0}}},
     std::nullopt,
     17 * kGiB,
     kGiB,
     "MemAvailable"},
    {"a number that was named is taken as it is",
     {20 * kGiB, 18 * kGiB, {}},
     12 * kGiB,
     12 * kGiB,
     0,
     "--memory"},
    {"unless it is not there", {20 * kGiB, 8 * kGiB, {}}, 12 * kGiB, 8 * kGiB, 0, "MemAvailable"},
    {"a cgroup over its limit leaves nothing",
     {20 * kGiB, 18 * kGiB, {{"/a", kGiB, 2 * kGiB}}},
     std::nullopt,
     0,
     0,
     "cgroup /a"},
};

TEST(Budget, FollowsTheTable) {
  for (const Case& c : kCases) {
    const Budget budget = decide_budget(c.machine, c.wanted);
    EXPECT_EQ(budget.limit_bytes, c.limit) << c.what;
    EXPECT_EQ(budget.floor_bytes, c.floor) << c.what;
    EXPECT_EQ(budget.source, c.source) << c.what;
  }
}

TEST(Budget, SaysSoWhenLessIsThereThanWasNamed) {
  const Budget budget = decide_budget({20 * kGiB, 8 * kGiB, {}}, 12 * kGiB);
  EXPECT_THAT(budget.warning, HasSubstr("12.00 GiB"));
  EXPECT_THAT(budget.warning, HasSubstr("8.00 GiB"));
  EXPECT_EQ(decide_budget({20 * kGiB, 18 * kGiB, {}}, 12 * kGiB).warning, "");
}

TEST(Budget, ReadsMeminfo) {
  const auto machine =
      parse_meminfo("MemTotal:       24586928 kB\nMemFree: 1 kB\nMemAvailable:   24100000 kB\n");
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->total_bytes, 24586928U * kKiB);
  EXPECT_EQ(machine->available_bytes, 24100000U * kKiB);
}

TEST(Budget, RefusesMeminfoWithoutItsLines) {
  for (const char* text : {"", "MemTotal: 5 kB\n", "MemTotal:\nMemAvailable: 3 kB\n"}) {
    const auto machine = parse_meminfo(text);
    ASSERT_FALSE(machine) << text;
    EXPECT_EQ(machine.error().code, Code::kIo);
  }
}

TEST(Budget, TakesUnlimitedCgroupsAsNone) {
  EXPECT_EQ(parse_cgroup_limit("max\n"), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit("9223372036854771712\n"), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit(""), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit("1073741824\n"), kGiB);
}

TEST(Budget, AsksEveryAncestorOfBothVersions) {
  EXPECT_THAT(
      memory_cgroup_folders("0::/user/app\n"),
      ElementsAre(CgroupFolder{"/sys/fs/cgroup/user/app", true},
                  CgroupFolder{"/sys/fs/cgroup/user", true}, CgroupFolder{"/sys/fs/cgroup", true}));
  EXPECT_THAT(memory_cgroup_folders("5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n"),
              ElementsAre(CgroupFolder{"/sys/fs/cgroup/memory/job", false},
                          CgroupFolder{"/sys/fs/cgroup/memory", false},
                          CgroupFolder{"/sys/fs/cgroup", true}));
  EXPECT_TRUE(memory_cgroup_folders("nonsense").empty());
}

TEST(Budget, ReadsThisMachine) {
  const auto machine = read_machine_memory();
  ASSERT_TRUE(machine) << to_string(machine.error());
  EXPECT_GT(machine->total_bytes, machine->available_bytes);
  EXPECT_GT(decide_budget(*machine, std::nullopt).limit_bytes, 0U);
}

// A machine of 8 GiB, and a cgroup of 1 GiB that is charged 3 MiB for these members.
MachineMemory in_cgroup_with(std::string_view members) {
  const testing_support::TempFolder root;
  const std::filesystem::path group = root.path() / "sys/fs/cgroup/job";
  std::filesystem::create_directories(root.path() / "proc/self");
  std::filesystem::create_directories(group);
  root.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n");
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.max", "1073741824\n");
  root.write("sys/fs/cgroup/job/memory.current", "4194304\n");
  root.write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 1048576\n");
  root.write("sys/fs/cgroup/job/cgroup.procs", members);
  return *read_machine_memory(root.path().string());
}

// A plan has bytes for the program: what the program took before it looked is of them.
TEST(Budget, OfAGroupOfOurOwnIsItsWholeLimit) {
  const MachineMemory alone = in_cgroup_with("42\n");
  EXPECT_EQ(alone.own_bytes, 3 * kMiB);
  EXPECT_EQ(decide_budget(alone, kGiB).limit_bytes, kGiB);
  EXPECT_EQ(decide_budget(alone, kGiB).warning, "");
  const MachineMemory shared = in_cgroup_with("42\n43\n");
  EXPECT_EQ(decide_budget(shared, kGiB).limit_bytes, kGiB - 3 * kMiB);
}

}  // namespace
}  // namespace lode::memory
