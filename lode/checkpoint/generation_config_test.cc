#include "lode/checkpoint/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::TempFolder;

TEST(GenerationConfig, ReadsWhatTheMakerRecommends) {
  const auto config = parse_generation_config(
      R"({"eos_token_id":[151645,151643],"bos_token_id":151643,"pad_token_id":null,)"
      R"("do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,)"
      R"("repetition_penalty":1.05,"suppress_tokens":[3],"transformers_version":"5.0"})");
  ASSERT_TRUE(config.has_value());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(151645, 151643));
  EXPECT_EQ(config->bos_token_id, 151643);
  EXPECT_FALSE(config->pad_token_id.has_value());
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->min_p, 0.0);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_THAT(config->suppress_tokens, ElementsAre(3));
}

TEST(GenerationConfig, AFolderWithoutOneIsFine) {
  const TempFolder folder;
  const auto config = read_generation_config(folder.path());
  ASSERT_TRUE(config.has_value());
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_FALSE(config->temperature.has_value());
}

TEST(GenerationConfig, NamesThePathOfAWrongValueAndTheFile) {
  const TempFolder folder;
  folder.write("generation_config.json", R"({"top_k":"many"})");
  const auto config = read_generation_config(folder.path());
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, Code::kInvalidSource);
  EXPECT_THAT(to_string(config.error()), HasSubstr("top_k"));
  EXPECT_THAT(to_string(config.error()), HasSubstr("generation_config.json"));
}

TEST(StopIds, AreThoseOfGenerationConfigBeforeThoseOfConfig) {
  const auto config = HfConfig::parse(R"({"eos_token_id":7,"text_config":{"eos_token_id":[9,8]}})");
  ASSERT_TRUE(config.has_value());
  GenerationConfig generation;
  EXPECT_THAT(*stop_ids(generation, *config, std::nullopt), ElementsAre(8, 9));
  generation.eos_token_ids = {5, 4, 5};
  EXPECT_THAT(*stop_ids(generation, *config, std::nullopt), ElementsAre(4, 5));
}

TEST(StopIds, HaveTheTokenizersEndTokenToo) {
  const auto empty = HfConfig::parse("{}");
  ASSERT_TRUE(empty.has_value());
  EXPECT_THAT(*stop_ids({}, *empty, std::nullopt), IsEmpty());
  EXPECT_THAT(*stop_ids({}, *empty, 3), ElementsAre(3));
  GenerationConfig generation;
  generation.eos_token_ids = {3, 1};
  EXPECT_THAT(*stop_ids(generation, *empty, 3), ElementsAre(1, 3));
  const auto wrong = HfConfig::parse(R"({"eos_token_id":"</s>"})");
  EXPECT_FALSE(stop_ids({}, *wrong, std::nullopt).has_value());
}

}  // namespace
}  // namespace lode::checkpoint
