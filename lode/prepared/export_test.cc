#include "lode/prepared/export.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "lode/json/json.h"
#include "lode/prepared/export_folder.h"
#include "lode/prepared/prepare_test_support.h"
#include "lode/prepared/test_faulty_calls.h"
#include "tests/support/sanitizers.h"

namespace lode::prepared {
namespace {

using targets::Target;
using testing::HasSubstr;

constexpr testing_support::SyntheticShape kSmall{.storage = ExpertStorage::kNvfp4,
                                                 .layers = 2,
                                                 .experts = 2,
                                                 .hidden = 128,
                                                 .intermediate = 64,
                                                 .vocab = 64};
constexpr std::string_view kDataFile = "model-00001-of-00001.safetensors";

/// A synthetic checkpoint that is exported for Marlin.
class Exports : public testing::Test {
 protected:
  Exports() { model_.choose({.target = Target::kMarlin}); }

  Result<std::unique_ptr<Preparation>> open(const Options& options = {},
                                            io::SystemCalls& calls = io::system_calls()) const {
    return open_export(model_.input(), out(), options, calls);
  }
  Result<Report> run(const Options& options = {},
                     io::SystemCalls& calls = io::system_calls()) const {
    memory::Ledger ledger(kRoomy);
    LODE_TRY(const auto work, open(options, calls));
    auto report = work->run(ledger);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    return report;
  }
  std::filesystem::path out() const { return model_.out(); }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(out())) {
      files[entry.path().filename().string()] = testing_support::read_text(entry.path());
    }
    return files;
  }
  void write(std::string_view name, std::string_view text) const {
    std::filesystem::create_directories(out());
    std::ofstream(out() / name, std::ios::binary) << text;
  }
  Error refusal(const Options& options = {}) const {
    const auto work = open(options);
    EXPECT_FALSE(work);
    return work ? Error{} : work.error();
  }

  FoldersInMemory in_memory_;
  PreparedModel model_{kSmall};
};

TEST_F(Exports, AreFilesOfOneNameAnIndexAndWordsOfWhatTheyAre) {
  ASSERT_TRUE(run());
  const auto made = files();
  std::vector<std::string> names;
  for (const auto& [name, text] : made) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("config.json", kExportFile, kDataFile, kExportIndexFile));
  const auto said = json::parse(made.at(std::string(kExportFile)));
  ASSERT_TRUE(said);
  EXPECT_EQ(*said->find("target")->as_string(), "marlin");
  EXPECT_EQ(said->find("sources")->as_array()->size(), 1U);
}

TEST_F(Exports, RepeatedAreFoundFinishedAndWriteNothing) {
  ASSERT_TRUE(run());
  const auto made = files();
  const auto again = open();
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_TRUE((*again)->is_finished());
  EXPECT_EQ((*again)->done_bytes(), (*again)->output_bytes());
  memory::Ledger ledger(kRoomy);
  const auto report = (*again)->run(ledger);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->written_bytes, 0U);
  EXPECT_EQ(files(), made);
}

TEST_F(Exports, ThatLackAFileOrPartOfItAreMadeAgain) {
  ASSERT_TRUE(run());
  const auto made = files();
  for (const std::string_view name : {kDataFile, kExportIndexFile}) {
    std::filesystem::resize_file(out() / name, 100);
    ASSERT_TRUE(run()) << name;
    EXPECT_EQ(files(), made) << name;
    std::filesystem::remove(out() / name);
    ASSERT_TRUE(run()) << name;
    EXPECT_EQ(files(), made) << name;
  }
}

TEST_F(Exports, OfOtherSettingsOrSourcesAreLeftAloneWithoutForce) {
  ASSERT_TRUE(run());
  const auto made = files();
  model_.choose({.target = Target::kMarlin, .experts = {1}});
  const Error other = refusal();
  EXPECT_EQ(other.code, Code::kUsage);
  EXPECT_THAT(other.hint, HasSubstr("--force"));
  EXPECT_EQ(files(), made);
  ASSERT_TRUE(run({.force = true}));
  EXPECT_THAT(files().at(std::string(kExportFile)), HasSubstr("\"experts\""));
  EXPECT_LT(files().at(std::string(kDataFile)).size(), made.at(std::string(kDataFile)).size());
  model_.choose({.target = Target::kMarlin});
  ASSERT_TRUE(run({.force = true}));
  EXPECT_EQ(files(), made);
}

TEST_F(Exports, BeginInNoFolderOfSomethingElse) {
  // Neither beside a stranger's file nor over one that has the name of an export's.
  for (const std::string_view name : {std::string_view("notes.txt"), kDataFile, kExportIndexFile}) {
    write(name, "mine");
    for (const bool force : {false, true}) EXPECT_EQ(refusal({.force = force}).code, Code::kUsage);
    EXPECT_EQ(files(), (std::map<std::string, std::string>{{std::string(name), "mine"}}));
    std::filesystem::remove_all(out());
  }
  write(kExportFile, "{\"lode_export\": 1}");
  write(kDataFile, "of another");
  EXPECT_EQ(refusal().code, Code::kUsage);
}

TEST_F(Exports, RemoveNoFilesOfOtherNames) {
  for (const char* name : {"model-1-of-1.safetensors", "model-00001-of-00001.safetensors.bak",
                           "model-00001-of-00001.gguf", "notes.part"}) {
    ASSERT_TRUE(run({.force = true}));
    write(name, "mine");
    ASSERT_TRUE(run({.force = true}));
    EXPECT_EQ(files().at(name), "mine");
    std::filesystem::remove(out() / name);
  }
}

TEST_F(Exports, KeepOthersOutWhileTheyAreAtWork) {
  const auto work = open();
  ASSERT_TRUE(work);
  std::filesystem::create_directories(out());
  auto other = OutputFile::open(io::system_calls(), (out() / kExportFile).string(),
                                OutputFile::Way::kBuffered);
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->lock());
  memory::Ledger ledger(kRoomy);
  const auto refused = (*work)->run(ledger);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kIo);
  EXPECT_THAT(refused.error().found, HasSubstr("another lode prepare"));
}

TEST_F(Exports, RefuseAFileOrNothingForAFolder) {
  std::ofstream(out()) << "a file";
  const auto is_file = [&](const Error& error) {
    EXPECT_EQ(error.code, Code::kUsage);
    EXPECT_EQ(error.thing, out().string());
    EXPECT_EQ(error.found, "a file");
  };
  is_file(refusal());
  is_file(model_.open().error());
  std::filesystem::remove(out());
  std::filesystem::create_symlink("nowhere", out());
  EXPECT_EQ(refusal().code, Code::kUsage);
  EXPECT_EQ(model_.open().error().code, Code::kUsage);
  std::filesystem::remove(out());
  const auto no_name = open_export(model_.input(), "");
  ASSERT_FALSE(no_name);
  EXPECT_EQ(no_name.error().code, Code::kUsage);
  const auto prepared_no_name = Preparation::open(model_.input(), "", {});
  ASSERT_FALSE(prepared_no_name);
  EXPECT_EQ(prepared_no_name.error().code, Code::kUsage);
  EXPECT_EQ(prepared_no_name.error().found, "an empty name");
}

// Whatever call it is that fails, the same one again makes the same files and no others.
TEST_F(Exports, AreMadeAgainAfterEachCallThatFails) {
  ASSERT_TRUE(run());
  const auto made = files();
  std::set<std::string> seen;
  for (const bool stays : {false, true}) {
    for (std::uint64_t k = 0;; ++k) {
      std::filesystem::remove_all(out());
      FaultyCalls calls(k, ENOSPC, stays);
      const auto report = run({}, calls);
      seen.insert(calls.seen().begin(), calls.seen().end());
      if (!calls.refused()) break;
      ASSERT_FALSE(report) << k;
      EXPECT_EQ(report.error().code, Code::kNoSpace) << to_string(report.error());
      ASSERT_FALSE(std::filesystem::exists(out() / kExportIndexFile) && !stays) << k;
      const auto again = run();
      ASSERT_TRUE(again) << k << " " << to_string(again.error());
      ASSERT_EQ(files(), made) << k;
    }
  }
  EXPECT_THAT(seen, testing::IsSupersetOf({"open", "pwrite", "truncate", "sync_data", "sync",
                                           "rename", "make_folder"}));
}

// The same of a process that is killed at each call, which can put nothing in order.
TEST_F(Exports, KilledAtEachCallAreMadeAgain) {
  if (testing_support::kSanitized) GTEST_SKIP() << "processes of sanitizers start too slowly";
  ASSERT_TRUE(run());
  const auto made = files();
  bool was_killed = true;
  bool saw_parts = false;
  for (std::uint64_t k = 0; was_killed; ++k) {
    std::filesystem::remove_all(out());
    const pid_t child = ::fork();
    if (child == 0) {
      FaultyCalls calls(k, kKilled, false);
      ::_exit(run({}, calls) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    was_killed = WIFSIGNALED(status);
    const bool has_index = std::filesystem::exists(out() / kExportIndexFile);
    if (!was_killed) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
    }
    if (has_index) {
      ASSERT_EQ(files(), made) << k;
    }
    saw_parts |= std::filesystem::exists(out() / (std::string(kDataFile) + ".part"));
    const auto again = run();
    ASSERT_TRUE(again) << k << " " << to_string(again.error());
    EXPECT_EQ(again->written_bytes == 0, has_index) << k;
    ASSERT_EQ(files(), made) << k;
  }
  EXPECT_TRUE(saw_parts);
}

// Over an export of something else, too: nothing of it passes for the new one.
TEST_F(Exports, ThatAreForcedAndKilledAreMadeAgain) {
  if (testing_support::kSanitized) GTEST_SKIP() << "processes of sanitizers start too slowly";
  ASSERT_TRUE(run());
  const auto made = files();
  bool was_killed = true;
  for (std::uint64_t k = 0; was_killed; ++k) {
    std::filesystem::remove_all(out());
    model_.choose({.target = Target::kMarlin, .experts = {1, 0}});
    ASSERT_TRUE(run());
    model_.choose({.target = Target::kMarlin});
    const pid_t child = ::fork();
    if (child == 0) {
      FaultyCalls calls(k, kKilled, false);
      ::_exit(run({.force = true}, calls) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    was_killed = WIFSIGNALED(status);
    const auto plain = open();
    if (plain && (*plain)->is_finished()) {
      ASSERT_EQ(files(), made) << k;
    }
    ASSERT_TRUE(run({.force = true})) << k;
    ASSERT_EQ(files(), made) << k;
  }
}

}  // namespace
}  // namespace lode::prepared
