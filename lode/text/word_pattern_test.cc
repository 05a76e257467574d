#include "lode/text/word_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lode/text/pattern_parts.h"

namespace lode::text {
namespace {

const WordPattern& named(std::string_view name) {
  for (const WordPattern& pattern : word_patterns()) {
    if (pattern.name == name) return pattern;
  }
  ADD_FAILURE() << name;
  return gpt2_pattern();
}

std::vector<std::string> words(std::string_view pattern, std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = named(pattern).match(text, at);
    if (end == at) {
      ADD_FAILURE() << "no match at " << at;
      break;
    }
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

using Words = std::vector<std::string>;

// Expected words were worked out by hand from the patterns' alternatives.
TEST(WordPattern, TheLastSpaceBelongsToTheNextWord) {
  EXPECT_EQ(words("gpt2", "a   b "), (Words{"a", "  ", " b", " "}));
  EXPECT_EQ(words("qwen2", "a \n\n  b"), (Words{"a", " \n\n", " ", " b"}));
}

TEST(WordPattern, DigitsGroupAsEachFamilyWantsThem) {
  EXPECT_EQ(words("gpt2", "12345"), (Words{"12345"}));
  EXPECT_EQ(words("qwen2", "123"), (Words{"1", "2", "3"}));
  EXPECT_EQ(words("cl100k", "12345"), (Words{"123", "45"}));
}

TEST(WordPattern, TheLongSIsAContractionWhereCaseDoesNotMatter) {
  EXPECT_EQ(words("qwen2", "a'\u017F"), (Words{"a", "'\u017F"}));
  EXPECT_EQ(words("qwen2", "x'LLy"), (Words{"x", "'LL", "y"}));
  EXPECT_EQ(words("gpt2", "x'LLy"), (Words{"x", "'", "LLy"}));
}

TEST(WordPattern, O200kSplitsWordsAtCapitalsAndKeepsTheirContraction) {
  EXPECT_EQ(words("o200k", "camelCaseHTTPServer's"), (Words{"camel", "Case", "HTTPServer's"}));
  EXPECT_EQ(words("o200k", "HTTP"), (Words{"HTTP"}));
  // The modifier letter is of both cases: the run of capitals gives it back.
  EXPECT_EQ(words("o200k", "A\u02B0B"), (Words{"A\u02B0", "B"}));
  EXPECT_EQ(words("o200k", "!/\n/x"), (Words{"!/\n/", "x"}));
}

TEST(WordPattern, AnUnknownTextHasNoPattern) {
  EXPECT_EQ(find_word_pattern(R"(\w+)"), nullptr);
  for (const WordPattern& pattern : word_patterns()) {
    EXPECT_EQ(find_word_pattern(pattern.regex), &pattern) << pattern.name;
  }
}

}  // namespace
}  // namespace lode::text
