#include "lode/checkpoint/rope_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lode::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RopeConfig rope_of(std::string_view text, std::string_view layer_type = "") {
  const Result<HfConfig> config = HfConfig::parse(text);
  EXPECT_TRUE(config.has_value());
  Result<RopeConfig> rope = read_rope(*config, layer_type);
  EXPECT_TRUE(rope.has_value()) << to_string(rope.error());
  return rope ? *rope : RopeConfig();
}

TEST(RopeConfig, IsTheDefaultWhereNothingIsSaid) {
  const RopeConfig rope = rope_of("{}");
  EXPECT_EQ(rope.type, "default");
  EXPECT_FALSE(rope.theta.has_value());
  EXPECT_TRUE(rope.truncate);
}

TEST(RopeConfig, ReadsTheOldForm) {
  const RopeConfig rope = rope_of(
      R"({"rope_theta":150000,"partial_rotary_factor":0.5,"rope_scaling":{"rope_type":"yarn",)"
      R"("factor":32.0,"beta_fast":32,"beta_slow":1,"truncate":false,)"
      R"("original_max_position_embeddings":4096}})");
  EXPECT_EQ(rope.type, "yarn");
  EXPECT_EQ(rope.theta, 150000.0);
  EXPECT_EQ(rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_EQ(rope.beta_fast, 32.0);
  EXPECT_EQ(rope.original_max_positions, 4096.0);
  EXPECT_FALSE(rope.truncate);
  EXPECT_FALSE(rope.attention_factor.has_value());
}

TEST(RopeConfig, ReadsTheNewForm) {
  const RopeConfig rope =
      rope_of(R"({"rope_parameters":{"rope_theta":1e6,"rope_type":"llama3","factor":8,)"
              R"("low_freq_factor":1,"high_freq_factor":4,"partial_rotary_factor":0.25}})");
  EXPECT_EQ(rope.type, "llama3");
  EXPECT_EQ(rope.theta, 1e6);
  EXPECT_EQ(rope.low_freq_factor, 1.0);
  EXPECT_EQ(rope.high_freq_factor, 4.0);
  EXPECT_EQ(rope.partial_rotary_factor, 0.25);
}

TEST(RopeConfig, PicksTheObjectOfALayerType) {
  constexpr std::string_view kText =
      R"({"rope_parameters":{"full_attention":{"rope_theta":1000000.0,"rope_type":"proportional"},)"
      R"("sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}}})";
  EXPECT_EQ(rope_of(kText, "full_attention").theta, 1e6);
  EXPECT_EQ(rope_of(kText, "full_attention").type, "proportional");
  EXPECT_EQ(rope_of(kText, "sliding_attention").theta, 1e4);
  EXPECT_EQ(rope_of(R"({"rope_parameters":{"rope_theta":5.0}})", "full_attention").theta, 5.0);
}

TEST(RopeConfig, KnowsOlderNamesOfTypes) {
  EXPECT_EQ(
      rope_of(R"({"rope_scaling":{"type":"su","short_factor":[1,2],"long_factor":[3]}})").type,
      "longrope");
  EXPECT_THAT(rope_of(R"({"rope_scaling":{"type":"su","short_factor":[1,2]}})").short_factor,
              ElementsAre(1.0, 2.0));
  EXPECT_EQ(rope_of(R"({"rope_scaling":{"type":"mrope","mrope_section":[1,1,1]}})").type,
            "default");
  EXPECT_EQ(rope_of(R"({"rope_scaling":{"type":"unheard_of"}})").type, "unheard_of");
}

TEST(RopeConfig, NamesThePathOfAWrongValue) {
  const Result<HfConfig> config = HfConfig::parse(R"({"rope_scaling":{"factor":"two"}})");
  ASSERT_TRUE(config.has_value());
  const Result<RopeConfig> rope = read_rope(*config);
  ASSERT_FALSE(rope.has_value());
  EXPECT_THAT(to_string(rope.error()), HasSubstr("rope_scaling.factor"));
}

TEST(RopeConfig, RefusesSettingsThatAreNoObject) {
  for (const char* text : {R"({"rope_scaling":"yarn"})", R"({"rope_scaling":[]})",
                           R"({"rope_parameters":[{"rope_type":"yarn","factor":4.0}]})"}) {
    const Result<HfConfig> config = HfConfig::parse(text);
    ASSERT_TRUE(config);
    const Result<RopeConfig> rope = read_rope(*config, "");
    ASSERT_FALSE(rope) << text;
    EXPECT_EQ(rope.error().code, Code::kInvalidSource);
    EXPECT_THAT(rope.error().thing, HasSubstr("rope_"));
  }
  EXPECT_EQ(rope_of(R"({"rope_scaling":null})").type, "default");
}

}  // namespace
}  // namespace lode::checkpoint
