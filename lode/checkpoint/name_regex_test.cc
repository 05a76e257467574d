#include "lode/checkpoint/name_regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lode::checkpoint {
namespace {

struct Row {
  const char* pattern;
  const char* text;
  bool matches;
};

// The decisions are those of Python's re.match.
TEST(NameRegex, DecidesAsPythonDoes) {
  const std::vector<Row> rows = {
      {".*mlp.gate$", "model.layers.1.mlp.gate", true},
      {".*mlp.gate$", "model.layers.1.mlp.gate_proj", false},
      {".*lm_head", "lm_head", true},
      {".*lm_head", "model.lm_head.weight", true},
      {"lm_head", "model.lm_head", false},
      {"visual.*", "visual.blocks.0", true},
      {"model\\.layers\\.(0|12)\\..*", "model.layers.12.mlp", true},
      {"model\\.layers\\.(0|12)\\..*", "model.layers.2.mlp", false},
      {"model\\.layers\\.(?:[0-9]|1[0-1])\\.mlp", "model.layers.11.mlp", true},
      {"model\\.layers\\.[^0-3]\\.mlp", "model.layers.3.mlp", false},
      {"a{2,3}$", "aaa", true},
      {"a{2,3}$", "aaaa", false},
      {"a{2}$", "aa", true},
      {"a{2,}$", "a", false},
      {"a{,2}", "a{,2}", true},
      {"a{0}b", "b", true},
      {"(ab)+$", "ababab", true},
      {"(ab)+$", "ababa", false},
      {"(a*)*$", "aaaa", true},
      {"\\d+\\.\\w+$", "17.gate_proj", true},
      {"\\D", "1", false},
      {"^a", "a", true},
      {"b^a", "ba", false},
      {"a|^b", "b", true},
      {"", "anything", true},
      {"a??b", "ab", true},
      {"[]a]", "]", true},
      {"[a-c-]+$", "a-c", true},
      {"x*", "", true},
      {"x+", "", false},
      {"(a|b|)c", "c", true},
      {".", "\n", false},
  };
  for (const Row& row : rows) {
    const auto regex = NameRegex::compile(row.pattern);
    ASSERT_TRUE(regex.has_value()) << row.pattern;
    EXPECT_EQ(regex->matches_start(row.text), row.matches) << row.pattern << " on " << row.text;
  }
}

TEST(NameRegex, RefusesWhatItDoesNotKnow) {
  for (const char* pattern : {"(?!a).*", "(?=a)", "(?<x>a)", "(a)\\1", "\\bmlp", "a**", "a*+"}) {
    const auto regex = NameRegex::compile(pattern);
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code, Code::kUnsupported) << pattern;
  }
}

TEST(NameRegex, RefusesBadSyntax) {
  for (const char* pattern : {"(", ")", "a)", "(a", "[", "[a", "[]", "*", "+a", "a|*", "\\",
                              "a{3,2}", "[z-a]", "a{1001}"}) {
    const auto regex = NameRegex::compile(pattern);
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code, Code::kInvalidSource) << pattern;
  }
}

TEST(NameRegex, RefusesPatternsThatWouldGrowWithoutBound) {
  EXPECT_FALSE(NameRegex::compile(std::string(2000, 'a')).has_value());
  EXPECT_FALSE(NameRegex::compile(std::string(500, '(') + std::string(500, ')')).has_value());
  EXPECT_FALSE(NameRegex::compile("((a{100}){100}){100}").has_value());
  EXPECT_FALSE(NameRegex::compile("((((){1000}){1000}){1000}){1000}").has_value());
}

TEST(NameRegex, TakesTimeInProportionWhereBacktrackingWouldNeverEnd) {
  const auto regex = NameRegex::compile("(a*)*(a|aa)*(a?){30}b$");
  ASSERT_TRUE(regex.has_value());
  EXPECT_FALSE(regex->matches_start(std::string(2000, 'a')));
}

}  // namespace
}  // namespace lode::checkpoint
