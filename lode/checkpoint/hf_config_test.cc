#include "lode/checkpoint/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::TempFolder;

HfConfig config_of(std::string_view text) {
  Result<HfConfig> config = HfConfig::parse(text);
  EXPECT_TRUE(config.has_value()) << text;
  return config ? *std::move(config) : *HfConfig::parse("{}");
}

template <class T>
std::string fault_of(const Result<T>& result) {
  if (result) return "";
  EXPECT_EQ(result.error().code, Code::kInvalidSource);
  return to_string(result.error());
}

TEST(HfConfig, TakesTheFirstSpellingThatIsThere) {
  const HfConfig config = config_of(R"({"num_experts":8,"n_routed_experts":16})");
  EXPECT_EQ(*config.get_int({"num_local_experts", "num_experts", "n_routed_experts"}), 8);
  EXPECT_EQ(*config.get_int({"absent"}, 7), 7);
  EXPECT_THAT(fault_of(config.get_int({"absent", "gone"})), HasSubstr("absent or gone"));
}

TEST(HfConfig, LooksInsideTextConfigFirst) {
  const HfConfig config =
      config_of(R"({"model_type":"outer","hidden_size":1,"vocab_size":9,)"
                R"("text_config":{"model_type":"inner","hidden_size":2,"sliding_window":null},)"
                R"("sliding_window":128})");
  EXPECT_EQ(*config.get_int({"hidden_size"}), 2);
  EXPECT_EQ(*config.get_int({"vocab_size"}), 9);
  EXPECT_EQ(*config.get_int({"sliding_window"}), 128);
  EXPECT_EQ(config.model_type(), "outer");
  EXPECT_EQ(config.text_model_type(), "inner");
}

TEST(HfConfig, NullCountsAsAbsent) {
  const HfConfig config = config_of(R"({"head_dim":null,"rope_scaling":null})");
  EXPECT_FALSE(config.has({"head_dim"}));
  EXPECT_EQ(*config.get_int({"head_dim"}, 64), 64);
  EXPECT_EQ(*config.get_float({"rope_scaling.factor"}, 1.5), 1.5);
}

TEST(HfConfig, NamesThePathOfAValueOfAnotherKind) {
  const HfConfig config = config_of(
      R"({"a":"x","b":1.0,"c":[1,"y"],"d":0,"e":4294967296,"text_config":{"f":{"g":[]}}})");
  EXPECT_THAT(fault_of(config.get_int({"a"})),
              HasSubstr("a in the config: want a whole number, found string \"x\""));
  EXPECT_THAT(fault_of(config.get_int({"b"})), HasSubstr("found number 1.0"));
  EXPECT_THAT(fault_of(config.get_ints({"c"})), HasSubstr("c[1] in the config"));
  EXPECT_THAT(fault_of(config.get_extent({"d"})), HasSubstr("from 1"));
  EXPECT_THAT(fault_of(config.get_extent({"e"}, 1)), HasSubstr("4294967296"));
  EXPECT_THAT(fault_of(config.get_bool({"d"}, true)), HasSubstr("true or false"));
  EXPECT_THAT(fault_of(config.get_string({"d"}, "")), HasSubstr("a string"));
  EXPECT_THAT(fault_of(config.get_float({"f.g"})), HasSubstr("text_config.f.g in the config"));
}

TEST(HfConfig, AWholeNumberIsAFloatToo) {
  const HfConfig config = config_of(R"({"rope_theta":10000,"eps":1e-6})");
  EXPECT_EQ(*config.get_float({"rope_theta"}), 10000.0);
  EXPECT_EQ(*config.get_float({"eps"}), 1e-6);
}

TEST(HfConfig, AValueCountsAsAListOfOne) {
  const HfConfig config =
      config_of(R"({"eos":5,"top":[1,2],"names":["a","b"],"alone":"c","factors":[1,2.5]})");
  EXPECT_THAT(*config.get_ints({"eos"}), ElementsAre(5));
  EXPECT_THAT(*config.get_ints({"top"}), ElementsAre(1, 2));
  EXPECT_THAT(*config.get_ints({"absent"}), IsEmpty());
  EXPECT_THAT(*config.get_strings({"names"}), ElementsAre("a", "b"));
  EXPECT_THAT(*config.get_strings({"alone"}), ElementsAre("c"));
  EXPECT_THAT(*config.get_floats({"factors"}), ElementsAre(1.0, 2.5));
}

TEST(HfConfig, ListsTheKeysThatNobodyAskedFor) {
  const HfConfig config = config_of(
      R"({"z":1,"read":2,"scaling":{"factor":1},"text_config":{"inner":1,"read_too":2}})");
  EXPECT_TRUE(config.get_int({"read"}).has_value());
  EXPECT_TRUE(config.get_int({"read_too"}).has_value());
  EXPECT_TRUE(config.get_float({"scaling.factor"}).has_value());
  EXPECT_THAT(config.unread_keys(), ElementsAre("z", "text_config.inner"));
}

TEST(HfConfig, TheArchitectureIsTheFirstOfItsList) {
  EXPECT_EQ(config_of(R"({"architectures":["A","B"]})").architecture(), "A");
  EXPECT_EQ(config_of(R"({"architectures":[]})").architecture(), "");
  EXPECT_EQ(config_of(R"({"architectures":"A"})").architecture(), "");
  EXPECT_EQ(config_of("{}").model_type(), "");
}

TEST(HfConfig, RefusesWhatIsNoObjectAndNamesTheFile) {
  EXPECT_NE(fault_of(HfConfig::parse("[]")), "");
  EXPECT_NE(fault_of(HfConfig::parse("")), "");
  const TempFolder folder;
  EXPECT_THAT(fault_of(HfConfig::read(folder.path())), HasSubstr("config.json"));
  folder.write("config.json", "{\"a\":}");
  EXPECT_THAT(fault_of(HfConfig::read(folder.path())), HasSubstr("config.json"));
  folder.write("config.json", std::string(17 << 20, ' '));
  EXPECT_THAT(fault_of(HfConfig::read(folder.path())), HasSubstr("at most 16777216 bytes"));
}

TEST(HfConfig, ReadsTheConfigOfAGoldenModel) {
  const Result<HfConfig> config = HfConfig::read(LODE_GOLDEN_DIR "/models/gpt_oss");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->model_type(), "gpt_oss");
  EXPECT_EQ(*config->get_extent({"num_local_experts"}), 8U);
}

}  // namespace
}  // namespace lode::checkpoint
