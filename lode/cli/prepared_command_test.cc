#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "lode/cli/test_command.h"

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
  EXPECT_EQ(whole(*value.find("kernel"), "source_cache_bytes"), 0);
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

TEST_F(PreparedCommands, AContradictingSettingIsRefusedWithExit8) {
  const Answer answer = lode(run(out_, {"--dense", "int8"}));
  EXPECT_EQ(answer.status, 8);
  EXPECT_THAT(answer.err, HasSubstr("lode prepare DIR OUT --dense int8"));
}

TEST_F(PreparedCommands, IsNoSourceToPrepareFrom) {
  EXPECT_EQ(lode({"prepare", out_, temp("again")}).status, 2);
}

}  // namespace
}  // namespace lode::cli
