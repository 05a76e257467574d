#include "lode/prepared/export_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/prepared/export.h"
#include "lode/prepared/export_folder.h"
#include "lode/prepared/prepare_test_support.h"

// What an export says of itself, and whether it is what its source makes.

namespace lode::prepared {
namespace {

using targets::Target;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr testing_support::SyntheticShape kSmall{.storage = ExpertStorage::kNvfp4,
                                                 .layers = 2,
                                                 .experts = 4,
                                                 .hidden = 128,
                                                 .intermediate = 64,
                                                 .vocab = 64};
constexpr std::string_view kDataFile = "model-00001-of-00001.safetensors";

class ExportCompare : public ::testing::Test {
 protected:
  void make(const loader::EngineChoice& choice) {
    model_.choose(choice);
    memory::Ledger ledger(kRoomy);
    const auto work = open_export(model_.input(), model_.out());
    ASSERT_TRUE(work) << to_string(work.error());
    ASSERT_TRUE((*work)->run(ledger));
  }
  Result<std::uint64_t> compare() const {
    memory::Ledger ledger(kRoomy);
    auto compared = compare_export(model_.out(), model_.input(), ledger);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    return compared;
  }
  std::string fault() const {
    const auto compared = compare();
    EXPECT_FALSE(compared);
    if (compared) return "none";
    EXPECT_EQ(compared.error().code, Code::kCheckFailed);
    return to_string(compared.error());
  }
  std::filesystem::path data() const { return model_.out() / kDataFile; }
  /// Turns one bit of the data, `from_end_bytes` before its end or at the begin of the data.
  void flip(std::int64_t at) const {
    std::fstream file(data(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  FoldersInMemory in_memory_;
  PreparedModel model_{kSmall};
};

TEST_F(ExportCompare, FindsAnExportEqualToItsSource) {
  make({.target = Target::kMarlin, .experts = {2, 3}, .ranks = 2, .rank = 1});
  const auto compared = compare();
  ASSERT_TRUE(compared) << to_string(compared.error());
  EXPECT_EQ(*compared, std::filesystem::file_size(data()));
}

TEST_F(ExportCompare, NamesTensorExpertAndPlaceOfAByteThatDiffers) {
  make({.target = Target::kMarlin, .experts = {2, 3}, .ranks = 2, .rank = 1});
  const std::string text = testing_support::read_text(data());
  std::uint64_t header = 0;
  for (std::size_t i = 8; i-- > 0;) header = header << 8 | static_cast<std::uint8_t>(text[i]);
  const auto first = static_cast<std::int64_t>(8 + header);
  flip(first + 5);  // of an int32: number 1
  EXPECT_THAT(fault(), HasSubstr("w13_weight of expert 2, at [0, 0, 1]: want 0x"));
  flip(first + 5);
  // The last tensor is copied from the source.
  flip(static_cast<std::int64_t>(text.size()) - 1);
  EXPECT_THAT(fault(), HasSubstr("as made from the source, found 0x"));
  flip(static_cast<std::int64_t>(text.size()) - 1);
  EXPECT_TRUE(compare());
}

TEST_F(ExportCompare, NamesFilesThatAreCutMissingOrOfOthers) {
  make({.target = Target::kMarlin});
  flip(20);
  EXPECT_THAT(fault(), HasSubstr("a header of others"));
  std::filesystem::resize_file(data(), 100);
  EXPECT_THAT(fault(), HasSubstr("found 100"));
  std::filesystem::remove(data());
  EXPECT_THAT(fault(), HasSubstr(kDataFile));
}

TEST_F(ExportCompare, ReadsWhatAnExportSaysOfItself) {
  make({.target = Target::kMarlin, .experts = {2, 3}, .ranks = 2, .rank = 1});
  const auto said = read_export(model_.out());
  ASSERT_TRUE(said) << to_string(said.error());
  EXPECT_EQ(said->choice.target, Target::kMarlin);
  EXPECT_EQ(said->choice.ranks, 2U);
  EXPECT_EQ(said->choice.rank, 1U);
  EXPECT_THAT(said->choice.experts, ElementsAre(2, 3));
  EXPECT_EQ(said->num_experts, 4U);
  ASSERT_EQ(said->sources.size(), 1U);
  EXPECT_EQ(said->sources[0].name, "model.safetensors");
  EXPECT_EQ(said->sources[0].bytes, std::filesystem::file_size(model_.shard()));
  EXPECT_EQ(said->sources[0].header_sha256.size(), 64U);
}

TEST_F(ExportCompare, TellsThatACheckpointIsAnotherByNamesSizesAndHeaders) {
  make({.target = Target::kMarlin});
  const auto said = read_export(model_.out());
  ASSERT_TRUE(said) << to_string(said.error());
  const auto told = [&](const ExportDescription& one) {
    const auto text = tell_other_source(one, model_.input().index);
    EXPECT_TRUE(text) << to_string(text.error());
    return *text;
  };
  EXPECT_EQ(told(*said), "");
  ExportDescription other = *said;
  other.sources[0].bytes = 4711;
  EXPECT_THAT(told(other), HasSubstr("model.safetensors had 4711 bytes"));
  other = *said;
  other.sources[0].header_sha256 = std::string(64, 'a');
  EXPECT_THAT(told(other), HasSubstr(std::string(64, 'a') + "; it has "));
  other = *said;
  other.sources[0].name = "model-00001-of-00002.safetensors";
  EXPECT_THAT(told(other), HasSubstr("model-00001-of-00002.safetensors, which is not there"));
  other = *said;
  other.sources.clear();
  EXPECT_THAT(told(other), HasSubstr("of 0 files, and there are 1"));
}

TEST_F(ExportCompare, SaysThatAllExpertsAreThereWhereTheyAre) {
  make({.target = Target::kMarlin});
  const auto said = read_export(model_.out());
  ASSERT_TRUE(said) << to_string(said.error());
  EXPECT_THAT(said->choice.experts, IsEmpty());
  EXPECT_THAT(said->experts, ElementsAre(0, 1, 2, 3));
}

TEST_F(ExportCompare, RefusesDescriptionsThatAreNone) {
  std::filesystem::create_directories(model_.out());
  const auto refusal = [&](std::string_view text) {
    std::ofstream(model_.out() / kExportFile) << text;
    EXPECT_TRUE(is_export(model_.out()));
    const auto said = read_export(model_.out());
    EXPECT_FALSE(said) << text;
    return said ? Code::kOther : said.error().code;
  };
  EXPECT_EQ(refusal("{"), Code::kInvalidSource);
  EXPECT_EQ(refusal("[]"), Code::kLayoutMismatch);
  EXPECT_EQ(refusal(R"({"lode_export": 2, "target": "marlin"})"), Code::kLayoutMismatch);
  EXPECT_EQ(refusal(R"({"lode_export": 1, "target": "nobody"})"), Code::kLayoutMismatch);
  for (const std::string_view experts : {"null", "[]", "[-1]", "[4294967296]", R"(["1"])"}) {
    EXPECT_EQ(refusal(R"({"lode_export": 1, "target": "marlin", "sources": [], "experts": )" +
                      std::string(experts) + "}"),
              Code::kInvalidSource);
  }
  EXPECT_EQ(refusal(R"({"lode_export": 1, "target": "marlin", "experts": [0]})"),
            Code::kInvalidSource);
}

TEST_F(ExportCompare, IsRefusedAsACheckpointWithAWordOfWhatItIs) {
  EXPECT_TRUE(check_not_export(model_.source_folder()));
  make({.target = Target::kMarlin});
  const Status refused = check_not_export(model_.out());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUsage);
  EXPECT_THAT(refused.error().found, HasSubstr("an export for target marlin (lode-export.json)"));
  EXPECT_THAT(refused.error().hint, HasSubstr("`lode prepare DIR OUT --target marlin`"));
}

}  // namespace
}  // namespace lode::prepared
