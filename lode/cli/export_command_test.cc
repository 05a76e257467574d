#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "lode/cli/test_command.h"

// Folders for GPU engines as a user meets them later: an export, and a prepared folder of one rank.

namespace lode::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ExportCommand : public ::testing::Test {
 protected:
  ExportCommand() {
    std::filesystem::remove_all(out_);
    const Answer made = lode({"prepare", kStory, out_, "--target", "marlin", "--ranks", "2",
                              "--rank", "1", "--export", "safetensors"});
    EXPECT_EQ(made.status, 0) << made.err;
  }
  const std::string out_ = temp("export-command");
};

TEST_F(ExportCommand, NoCommandTakesAnExportForACheckpoint) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"run", out_, "-p", "x"},
                                             {"plan", out_},
                                             {"plan", out_, "--target", "marlin"},
                                             {"prepare", out_, temp("of-an-export")},
                                             {"bench", "load", out_},
                                             {"verify", out_}}) {
    const Answer answer = lode(words);
    EXPECT_EQ(answer.status, 2) << words[0] << answer.err;
    EXPECT_THAT(answer.err, HasSubstr("an export for target marlin (lode-export.json)"))
        << words[0];
    EXPECT_THAT(answer.err, HasSubstr("`lode prepare DIR OUT --target marlin`")) << words[0];
  }
}

TEST_F(ExportCommand, InspectShowsWhatItIs) {
  const std::string text = lode({"inspect", out_}).out;
  EXPECT_THAT(text, HasSubstr("export    for target marlin"));
  EXPECT_THAT(text, HasSubstr("\nrank      1 of 2\n"));
  EXPECT_THAT(text, HasSubstr("8 of each layer, for one rank of an engine: 8-15\n"));
  EXPECT_THAT(text, HasSubstr("\nmade of   "));
  EXPECT_THAT(text, HasSubstr("w13_weight"));
  const json::Value found = json_of(lode({"inspect", out_, "--json"}).out);
  EXPECT_EQ(*found.find("exported_for")->as_string(), "marlin");
  EXPECT_EQ(whole(found, "ranks"), 2);
  EXPECT_EQ(whole(found, "rank"), 1);
  EXPECT_EQ(found.find("experts")->as_array()->size(), 8U);
  EXPECT_TRUE(found.find("online")->is_null());
  EXPECT_FALSE(found.find("sources")->as_array()->empty());
  EXPECT_FALSE(found.find("tensors")->as_array()->empty());
}

TEST_F(ExportCommand, InspectSaysWhereItIsNotFinished) {
  std::filesystem::remove(out_ + "/model.safetensors.index.json");
  const Answer begun = lode({"inspect", out_});
  EXPECT_EQ(begun.status, 4);
  EXPECT_THAT(begun.err, HasSubstr("one that was begun"));
}

TEST_F(ExportCommand, VerifyMakesItAgainFromItsSource) {
  const Answer same = lode({"verify", out_, "--against", kStory});
  EXPECT_EQ(same.status, 0) << same.err << same.out;
  const std::string data = out_ + "/model-00001-of-00001.safetensors";
  std::fstream file(data, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(last);
  file.close();
  const Answer other = lode({"verify", out_, "--against", kStory});
  EXPECT_EQ(other.status, 12);
  EXPECT_THAT(other.out, HasSubstr("as made from the source"));
  EXPECT_THAT(other.err, HasSubstr("--force"));
}

TEST(EngineFolders, StartByRestoringAndSayThatItIsSlow) {
  const std::string out = temp("engine-folder");
  std::filesystem::remove_all(out);
  ASSERT_EQ(lode({"prepare", kStory, out, "--target", "marlin"}).status, 0);
  for (const char* const start : {"map", "read"}) {
    const Answer refused = lode({"run", out, "-p", "x", "-n", "1", "--start", start});
    EXPECT_EQ(refused.status, 2) << start;
    EXPECT_THAT(refused.err, HasSubstr("want --start restore")) << start;
  }
  const Answer ran = lode({"run", out, "-p", "x", "-n", "1", "--start", "restore"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("note: the experts lie as marlin's kernels read them"));
  EXPECT_THAT(lode({"plan", out}).out, HasSubstr("\ntarget    marlin, restored"));
  EXPECT_EQ(*json_of(lode({"plan", out, "--json"}).out).find("target")->as_string(), "marlin");
  EXPECT_EQ(*json_of(lode({"plan", kStory, "--json"}).out).find("target")->as_string(), "cpu");
}

TEST(EngineFolders, OfARankSayWhichExpertsTheyHave) {
  const std::string out = temp("engine-rank");
  std::filesystem::remove_all(out);
  ASSERT_EQ(
      lode({"prepare", kStory, out, "--target", "marlin", "--ranks", "2", "--rank", "0"}).status,
      0);
  const std::string text = lode({"inspect", out}).out;
  EXPECT_THAT(text, HasSubstr("\nrank      0 of 2\n"));
  EXPECT_THAT(text, HasSubstr("for one rank of an engine: 0-7\n"));
  EXPECT_THAT(text, Not(HasSubstr("FlashInfer")));
}

}  // namespace
}  // namespace lode::cli
