#include "lode/checkpoint/module_set.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lode/checkpoint/quant_config.h"

namespace lode::checkpoint {
namespace {

struct Row {
  Dialect dialect;
  const char* entry;
  const char* module;
  bool matches;
};

// What the tools that read these dialects decide, or what their writers meant.
const std::vector<Row>& rows() {
  using enum Dialect;
  static const std::vector<Row> kRows = {
      // ModelOpt: names as they are, a trailing star is a plain prefix, parents cover children.
      {kModelOpt, "lm_head", "lm_head", true},
      {kModelOpt, "model.layers.1.mlp.gate", "model.layers.1.mlp.gate", true},
      {kModelOpt, "model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj", false},
      {kModelOpt, "model.layers.1.mlp.gate", "model.layers.11.mlp.gate", false},
      {kModelOpt, "layers.1.mlp.gate", "model.layers.1.mlp.gate", true},
      {kModelOpt, "model.language_model.layers.1.mlp.gate", "model.layers.1.mlp.gate", true},
      {kModelOpt, "language_model.model.layers.1.mlp.gate", "model.layers.1.mlp.gate", true},
      {kModelOpt, "model.layers.1*", "model.layers.1.mlp.gate", true},
      {kModelOpt, "model.layers.1*", "model.layers.17.mlp.gate", true},
      {kModelOpt, "model.layers.1*", "model.layers.2.mlp.gate", false},
      {kModelOpt, "*self_attn*", "model.layers.3.self_attn.q_proj", true},
      {kModelOpt, "model.layers.1.mlp", "model.layers.1.mlp.experts.3.up_proj", true},
      {kModelOpt, "mlp.gate", "model.layers.1.mlp.gate", false},
      // compressed-tensors: exact, or a pattern.
      {kCompressedTensors, "lm_head", "lm_head", true},
      {kCompressedTensors, "model.layers.1.mlp", "model.layers.1.mlp.gate", false},
      {kCompressedTensors, "re:.*mlp.gate$", "model.layers.1.mlp.gate", true},
      {kCompressedTensors, "re:.*mlp.gate$", "model.layers.1.mlp.gate_proj", false},
      {kCompressedTensors, "re:.*embed_tokens.*", "model.embed_tokens", true},
      {kCompressedTensors, "re:model.layers.0.*", "layers.0.mlp.up_proj", true},
      {kCompressedTensors, "re:model.language_model.layers.0.*", "model.layers.0.mlp", true},
      {kCompressedTensors, "re:layers.0.*", "model.layers.0.mlp", true},
      {kCompressedTensors, "re:mlp", "model.layers.0.mlp", false},
      // transformers: parents, and parts anywhere.
      {kMxfp4, "model.layers.*.self_attn", "model.layers.3.self_attn.q_proj", true},
      {kMxfp4, "model.layers.*.mlp.router", "model.layers.3.mlp.router", true},
      {kMxfp4, "model.layers.*.mlp.router", "model.layers.3.mlp.experts", false},
      {kMxfp4, "lm_head", "lm_head", true},
      {kFp8, "gate", "model.layers.3.mlp.gate", true},
      {kFp8, "gate", "model.layers.3.mlp.gate_proj", false},
      {kFp8, "self_attn", "model.layers.3.self_attn.q_proj", true},
      {kFp8, "model.layers.1", "model.layers.10.mlp.gate", false},
      {kFbgemmFp8, "lm_head", "lm_head", true},
      {kFbgemmFp8, "mlp.gate", "model.layers.0.mlp.gate", true},
      // Quark.
      {kQuark, "lm_head", "lm_head", true},
      {kQuark, "*mlp.gate", "model.layers.0.mlp.gate", true},
      {kQuark, "re:.*gate$", "model.layers.0.mlp.gate", true},
  };
  return kRows;
}

TEST(ModuleSet, DecidesEachEntryAsItsDialectMeansIt) {
  for (const Row& row : rows()) {
    ModuleSet set(info(row.dialect).cover);
    ASSERT_TRUE(set.add(row.entry).has_value()) << row.entry;
    EXPECT_EQ(set.matches(row.module), row.matches)
        << info(row.dialect).quant_method << ": " << row.entry << " on " << row.module;
  }
}

TEST(ModuleSet, AnEmptySetMatchesNothing) {
  const ModuleSet set(Cover::kAnywhere);
  EXPECT_TRUE(set.empty());
  EXPECT_FALSE(set.matches("lm_head"));
  EXPECT_FALSE(set.matches(""));
}

TEST(ModuleSet, RefusesPatternsBeyondItsLimitAndKeepsPlainNames) {
  ModuleSet set;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(set.add("a*" + std::to_string(i)).has_value());
  EXPECT_FALSE(set.add("b*").has_value());
  EXPECT_FALSE(set.add("re:b").has_value());
  EXPECT_TRUE(set.add("b").has_value());
  EXPECT_TRUE(set.matches("b"));
}

TEST(ModuleSet, RefusesPatternsThatItCannotReadAndStaysAsItWas) {
  ModuleSet set;
  const Status added = set.add("re:(?!x).*");
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, Code::kUnsupported);
  EXPECT_TRUE(set.empty());
}

TEST(GlobMatches, AStarIsAnyRunOfCharacters) {
  EXPECT_TRUE(glob_matches("a*c", "abbbc"));
  EXPECT_TRUE(glob_matches("a*c", "ac"));
  EXPECT_FALSE(glob_matches("a*c", "acb"));
  EXPECT_TRUE(glob_matches("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(glob_matches("*a*b*", "xxbxxaxx"));
  EXPECT_TRUE(glob_matches("**", ""));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("*a*a*a*a*a*b", std::string(3000, 'a')));
}

}  // namespace
}  // namespace lode::checkpoint
