#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "lode/cli/test_command.h"
#include "lode/io/checksum.h"
#include "lode/prepared/format.h"
#include "lode/prepared/manifest.h"

// The commands on a folder that `lode prepare` made, as a user types them.

namespace lode::cli {
namespace {

using ::testing::HasSubstr;

class PreparedCommands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    out_ = temp("prepared-story");
    const Answer made = lode({"prepare", kStory, out_});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  static std::vector<std::string> run(const std::string& folder,
                                      const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"run",   folder, "-p",     "Alice", "-n",       "12",
                                      "--ctx", "64",   "--seed", "7",     "--memory", "1GiB"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::string out_;
};
std::string PreparedCommands::out_;

TEST_F(PreparedCommands, RunToTheSameTextWhicheverWayItStarts) {
  const Answer usual = lode(run(kStory));
  ASSERT_EQ(usual.status, 0) << usual.err;
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"--start", "read"},
                                               {"--verify", "full"},
                                               {"--start", "read", "--verify", "none"}}) {
    const Answer prepared = lode(run(out_, more));
    EXPECT_EQ(prepared.status, 0) << prepared.err;
    EXPECT_EQ(prepared.out, usual.out);
  }
}

TEST_F(PreparedCommands, ReceiptIsAsPlanned) {
  const std::string receipt = temp("prepared-receipt.json");
  ASSERT_EQ(lode(run(out_, {"--receipt", receipt})).status, 0);
  const json::Value value = json_of(text_of(receipt));
  EXPECT_TRUE(*value.find("as_planned")->as_bool());
  const json::Value& kernel = *value.find("kernel");
  EXPECT_TRUE(kernel.find("source_cache_bytes")->is_null());  // its files are the weights
  EXPECT_GT(whole(kernel, "num_samples"), 0);
  EXPECT_GT(whole(kernel, "peak_total_bytes"), 0);
}

TEST_F(PreparedCommands, AnotherStartIsNamedAsASettingAndNotAsABugOfLode) {
  const std::string receipt = temp("prepared-read.json");
  ASSERT_EQ(lode(run(out_, {"--start", "read", "--receipt", receipt})).status, 0);
  const Answer same = lode(
      {"plan", out_, "--ctx", "64", "--memory", "1GiB", "--start", "read", "--after", receipt});
  EXPECT_EQ(same.status, 0) << same.out << same.err;
  const Answer other = lode({"plan", out_, "--ctx", "64", "--memory", "1GiB", "--after", receipt});
  EXPECT_EQ(other.status, 12);
  EXPECT_THAT(other.out, HasSubstr("setting   start: planned map, run with read"));
  EXPECT_THAT(other.err, HasSubstr("plan with the same"));
}

TEST_F(PreparedCommands, PlanSaysHowItStartsAndNothingOfALoad) {
  const std::string mapped = lode({"plan", out_}).out;
  EXPECT_THAT(mapped, HasSubstr("mapped, 1 file"));
  EXPECT_THAT(mapped, HasSubstr("; --start map --verify header\n"));
  for (const char* const not_here : {"ring of", "--io", "prepare would write"}) {
    EXPECT_EQ(mapped.find(not_here), std::string::npos) << mapped;
  }
  EXPECT_THAT(lode({"plan", out_, "--start", "read"}).out,
              HasSubstr("; --start read --verify header --io auto, 2 threads\n"));
}

TEST_F(PreparedCommands, InspectSaysWhatItIs) {
  const json::Value value = json_of(lode({"inspect", out_, "--json"}).out);
  EXPECT_EQ(*value.find("prepared_for")->as_string(), "cpu");
  EXPECT_THAT(lode({"inspect", out_}).out, HasSubstr("prepared  for target cpu"));
}

TEST_F(PreparedCommands, VerifyPassesWhatIsWholeAndItsSource) {
  EXPECT_EQ(lode({"verify", out_}).status, 0);
  EXPECT_EQ(lode({"verify", out_, "--against", kStory}).status, 0);
  const Answer source = lode({"verify", kStory, "--json"});
  EXPECT_EQ(source.status, 0) << source.out;
  EXPECT_TRUE(*json_of(source.out).find("passed")->as_bool());
}

TEST_F(PreparedCommands, VerifyNamesWhatIsDamagedWithExit12) {
  const std::string other = temp("prepared-damaged");
  std::filesystem::copy(out_, other);
  std::fstream file(other + "/weights-00000.bin", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(1000);
  file.put('\x55').flush();
  const Answer found = lode({"verify", other});
  EXPECT_EQ(found.status, 12);
  EXPECT_THAT(found.out, HasSubstr("model"));
  EXPECT_THAT(found.out, HasSubstr("weights-00000.bin at byte 0"));
  EXPECT_EQ(lode(run(other, {"--verify", "full"})).status, 4);
}

TEST_F(PreparedCommands, VerifyNamesAnIndexThatIsWholeButOfAnotherModel) {
  const std::string other = temp("prepared-stranger");
  std::filesystem::copy(out_, other);
  const std::string bytes = text_of(other + "/index.bin");
  prepared::Index index = *prepared::decode(std::as_bytes(std::span(bytes)));
  index.stages.front().places.front().role = families::Role::kFinalNorm;  // was another
  ASSERT_NE(prepared::decode(std::as_bytes(std::span(bytes)))->stages.front().places.front().role,
            families::Role::kFinalNorm);
  const std::vector<std::byte> encoded = prepared::encode(index);
  prepared::Manifest manifest = *prepared::decode_manifest(text_of(other + "/manifest.json"));
  manifest.root_sha256 = io::sha256(encoded);
  std::string index_text(encoded.size(), '\0');
  std::memcpy(index_text.data(), encoded.data(), encoded.size());
  std::ofstream(other + "/index.bin", std::ios::binary) << index_text;
  std::ofstream(other + "/manifest.json", std::ios::binary) << prepared::encode(manifest);
  EXPECT_EQ(lode(run(other)).status, 4);
  EXPECT_EQ(lode({"verify", other}).status, 12);
}

TEST_F(PreparedCommands, OnlyWhatWasPreparedIsComparedWithASource) {
  EXPECT_EQ(lode({"verify", kStory, "--against", kStory}).status, 2);
}

TEST_F(PreparedCommands, AContradictingSettingIsRefusedWithExit8) {
  const Answer answer = lode(run(out_, {"--dense", "int8"}));
  EXPECT_EQ(answer.status, 8);
  EXPECT_THAT(answer.err, HasSubstr("lode prepare DIR OUT --dense int8"));
}

TEST_F(PreparedCommands, TheirReceiptHasNothingThatWasNotMeasured) {
  const std::string receipt = temp("prepare-receipt.json");
  const Answer made = lode({"prepare", kStory, temp("with-receipt"), "--receipt", receipt});
  ASSERT_EQ(made.status, 0) << made.err;
  const json::Value value = json_of(text_of(receipt));
  EXPECT_TRUE(*value.find("as_planned")->as_bool());
  const json::Value& what = *value.find("prepare");
  EXPECT_EQ(*what.find("model")->as_string(), "story-moe-nvfp4");
  EXPECT_NE(*what.find("io")->as_string(), "");
  EXPECT_EQ(whole(what, "load_threads"), 2);
  EXPECT_GT(whole(value, "written_bytes"), 0);
  EXPECT_EQ(whole(value, "written_bytes"), whole(value, "output_bytes"));
  EXPECT_GT(whole(*value.find("kernel"), "num_samples"), 0);
  EXPECT_EQ(value.find("planned_load_peak_bytes"), nullptr);
}

TEST_F(PreparedCommands, ARefusedPreparationLeavesWhatIsThere) {
  const std::string other = temp("kept");
  std::filesystem::copy(out_, other);
  EXPECT_EQ(lode({"prepare", kStory, other, "--force", "--memory", "10MiB"}).status, 3);
  EXPECT_EQ(lode({"verify", other}).status, 0);
  EXPECT_EQ(lode({"prepare", kStory, temp("never"), "--memory", "10MiB"}).status, 3);
  EXPECT_FALSE(std::filesystem::exists(temp("never")));
}

// A note in the folder is what tells that zeros may stand for weights there.
TEST_F(PreparedCommands, ASourceThatWasGivenAwayIsRefusedByEveryCommand) {
  const std::string source = temp("given-away");
  std::filesystem::copy(kStory, source, std::filesystem::copy_options::recursive);
  std::ofstream(source + "/lode-consumed.json") << "{\"given_to\": \"/models/f1\"}";
  for (const std::vector<std::string>& command :
       {run(source), {"plan", source}, {"inspect", source}, {"prepare", source, temp("never")}}) {
    const Answer answer = lode(command);
    EXPECT_EQ(answer.status, 4) << command.front();
    EXPECT_THAT(answer.err, HasSubstr("/models/f1")) << command.front();
    EXPECT_THAT(answer.out, ::testing::Not(HasSubstr("runs on target"))) << command.front();
  }
  const Answer verified = lode({"verify", source});
  EXPECT_EQ(verified.status, 12);
  EXPECT_THAT(verified.out, HasSubstr("use that folder"));
  EXPECT_THAT(verified.out, HasSubstr("1 fault\n"));
  EXPECT_THAT(verified.err, ::testing::Not(HasSubstr("download")));
  EXPECT_FALSE(std::filesystem::exists(temp("never")));
}

TEST_F(PreparedCommands, VerifyOfOneThatWasBegunHasOneAdvice) {
  const std::string begun = temp("begun");
  std::filesystem::copy(out_, begun);
  std::filesystem::remove(begun + "/manifest.json");
  const Answer answer = lode({"verify", begun});
  EXPECT_EQ(answer.status, 12);
  EXPECT_THAT(answer.out, HasSubstr("goes on where it was stopped"));
  EXPECT_THAT(answer.out + answer.err, ::testing::Not(HasSubstr("prepare the checkpoint again")));
}

TEST_F(PreparedCommands, TheirOptionsAreRefusedForAnotherFolder) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--start", "read"}, {"--verify", "header"}}) {
    const Answer answer = lode(run(kStory, more));
    EXPECT_EQ(answer.status, 2);
    EXPECT_THAT(answer.err, HasSubstr("--start and --verify"));
  }
}

TEST_F(PreparedCommands, IsNoSourceToPrepareFrom) {
  EXPECT_EQ(lode({"prepare", out_, temp("again")}).status, 2);
}

TEST_F(PreparedCommands, AFinishedFolderHasNothingToWriteAReceiptOf) {
  const std::string receipt = temp("of-nothing.json");
  const Answer again = lode({"prepare", kStory, out_, "--receipt", receipt});
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, ::testing::HasSubstr("nothing to do, and no receipt of it is written"));
  EXPECT_FALSE(std::filesystem::exists(receipt));
}

}  // namespace
}  // namespace lode::cli
