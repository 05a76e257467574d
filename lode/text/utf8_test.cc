#include "lode/text/utf8.h"

#include <gtest/gtest.h>

#include "lode/text/test_golden_file.h"

namespace lode::text {
namespace {

TEST(Utf8, EveryCodePointSurvivesTheRoundTrip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    const Utf8Step step = utf8_step(text, 0);
    ASSERT_TRUE(step.well_formed) << static_cast<unsigned>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
  }
}

// The example of the Unicode Standard, table 3-8 and its neighbours.
TEST(Utf8, EachMaximalIllFormedPartIsOneReplacement) {
  const auto lossy = [](std::string_view hex) { return lossy_utf8(golden::from_hex(hex)); };
  EXPECT_EQ(lossy("61f18080e180c262806380bf64"), "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(lossy("c080"), "\uFFFD\uFFFD");                  // overlong
  EXPECT_EQ(lossy("eda080"), "\uFFFD\uFFFD\uFFFD");          // a surrogate
  EXPECT_EQ(lossy("f4908080"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(lossy("e282"), "\uFFFD");
}

TEST(Utf8, OnlyAnEndingTextIsUnfinished) {
  EXPECT_TRUE(utf8_step("\xE2\x82", 0).unfinished);
  EXPECT_FALSE(utf8_step("\xE2\x82!", 0).unfinished);
  EXPECT_FALSE(utf8_step("\xFF", 0).unfinished);
}

}  // namespace
}  // namespace lode::text
