#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "lode/prepared/prepare_test_support.h"
#include "tests/support/sanitizers.h"

namespace lode::prepared {
namespace {

bool full_tests() { return std::getenv("LODE_FULL_TESTS") != nullptr; }

// Units of one write each, and layers enough for a few dozen of them.
constexpr testing_support::SyntheticShape kModel{.storage = ExpertStorage::kNvfp4,
                                                 .layers = 3,
                                                 .experts = 4,
                                                 .hidden = 256,
                                                 .intermediate = 192,
                                                 .vocab = 512};
constexpr Options kSmallUnits{.unit_bytes = 1};

// Prepares in a process of its own, which is killed after a while. Whether it came to its end.
bool prepare_and_kill(const PreparedModel& model, std::chrono::microseconds after) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto report = model.prepare(kSmallUnits);
    if (!report) ::write(STDERR_FILENO, report.error().thing.data(), report.error().thing.size());
    ::_exit(report ? 0 : 1);
  }
  std::this_thread::sleep_for(after);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return false;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return true;
}

TEST(PrepareKilled, AtAnyInstantGoesOnToABitEqualResult) {
  if (testing_support::kSanitized) GTEST_SKIP() << "processes of sanitizers start too slowly";
  const FoldersInMemory in_memory;
  const PreparedModel model(kModel);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(model.prepare(kSmallUnits));
  const auto whole = std::chrono::steady_clock::now() - begin;
  const auto most =
      std::chrono::duration_cast<std::chrono::microseconds>(whole).count() * 6 / 10 + 1000;
  std::mt19937 random(20261129);
  const int wanted = full_tests() ? 10'000 : 300;
  int kills = 0;
  int results = 0;
  // How many kills a result takes is the machine's business; that it comes is ours.
  for (int run = 0; kills < wanted || results <= 3; ++run) {
    ASSERT_LT(run, 10 * wanted) << results << " results";
    const std::chrono::microseconds after(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
    if (!prepare_and_kill(model, after)) {
      ++kills;
      continue;
    }
    model.expect_whole();
    ASSERT_FALSE(HasFailure()) << "run " << run;
    std::filesystem::remove_all(model.out());
    ++results;
  }
  ASSERT_TRUE(model.prepare(kSmallUnits));
  model.expect_whole();
  RecordProperty("kills", kills);
  RecordProperty("results", results);
}

enum class Change { kTruncate, kReplace, kOverwrite, kExtend, kRemove };

void change(const std::filesystem::path& shard, Change how, std::uint64_t at) {
  switch (how) {
    case Change::kTruncate:
      std::filesystem::resize_file(shard, at);
      return;
    case Change::kReplace:
      std::filesystem::copy_file(shard, shard.string() + ".new");
      std::filesystem::rename(shard.string() + ".new", shard);
      return;
    case Change::kOverwrite: {
      std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(at));
      file.write("changed", 7);
      return;
    }
    case Change::kExtend:
      std::filesystem::resize_file(shard, std::filesystem::file_size(shard) + 1 + at % 9999);
      return;
    case Change::kRemove:
      std::filesystem::remove(shard);
  }
}

TEST(PrepareChanged, SourceAtAnyInstantEndsInACodeOrAVerifiedResult) {
  const FoldersInMemory in_memory;
  PreparedModel model(kModel);
  const std::string bytes = testing_support::read_text(model.shard());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(model.prepare());
  const auto whole = std::chrono::steady_clock::now() - begin;
  const auto most = std::chrono::duration_cast<std::chrono::microseconds>(whole).count() + 500;
  std::mt19937 random(4);
  const int rounds = full_tests() ? 2000 : testing_support::kSanitized ? 10 : 40;
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    std::filesystem::remove_all(model.out());
    std::filesystem::remove(model.shard());
    std::ofstream(model.shard(), std::ios::binary) << bytes;
    model.reindex();
    model.replan_sources();
    const auto how = static_cast<Change>(random() % 5);
    const std::uint64_t at = random() % bytes.size();
    const std::chrono::microseconds after(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
    std::thread changer([&] {
      std::this_thread::sleep_for(after);
      change(model.shard(), how, at);
    });
    const auto report = model.prepare();
    changer.join();
    if (report) {
      model.expect_whole();
      continue;
    }
    ++refused;
    EXPECT_EQ(report.error().code, Code::kSourceChanged) << to_string(report.error());
    EXPECT_FALSE(std::filesystem::exists(model.out() / kManifestFile));
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace lode::prepared
