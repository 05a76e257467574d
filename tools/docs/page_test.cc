#include "tools/docs/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/docs/tables.h"

namespace lode::docs {
namespace {

using testing::HasSubstr;

constexpr std::string_view kEmpty =
    "Before.\n<!-- lode-docs: codes -->\n<!-- lode-docs end -->\nAfter.\n";

TEST(Page, IsFilledBetweenItsMarksAndKeepsTheRest) {
  const auto page = filled(kEmpty);
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->starts_with("Before.\n<!-- lode-docs: codes -->\n\n| exit status |"));
  EXPECT_TRUE(page->ends_with("|\n\n<!-- lode-docs end -->\nAfter.\n"));
  EXPECT_THAT(*page, HasSubstr("| 3 | `over_budget` |"));
}

TEST(Page, ThatIsFilledStaysAsItIs) {
  const auto once = filled(kEmpty);
  ASSERT_TRUE(once);
  EXPECT_EQ(*filled(*once), *once);
}

TEST(Page, LosesAnEditBetweenTheMarks) {
  const auto clean = filled(kEmpty);
  ASSERT_TRUE(clean);
  std::string edited = *clean;
  edited.insert(edited.find("| 3 |"), "| 99 | `mine` |\n");
  EXPECT_EQ(*filled(edited), *clean);
  EXPECT_THAT(first_difference(edited, *clean), HasSubstr("`mine`"));
}

TEST(Page, WithoutMarksIsLeftAlone) { EXPECT_EQ(*filled("Just text.\n"), "Just text.\n"); }

TEST(Page, RefusesAnUnknownName) {
  const auto page = filled("<!-- lode-docs: weather -->\n<!-- lode-docs end -->\n");
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().found, "weather");
}

TEST(Page, RefusesAMarkWithoutItsEnd) {
  EXPECT_FALSE(filled("<!-- lode-docs: codes -->\n"));
  EXPECT_FALSE(filled("<!-- lode-docs: codes"));
  EXPECT_FALSE(
      filled("<!-- lode-docs: codes -->\n<!-- lode-docs: tags -->\n<!-- lode-docs end -->"));
}

TEST(Tables, EveryPrintHasTextAndEndsItsLine) {
  for (const Print& print : prints()) {
    const std::string text = print.text();
    EXPECT_GT(text.size(), 40U) << print.name;
    EXPECT_TRUE(text.ends_with("\n")) << print.name;
  }
}

TEST(Tables, CountTheScalesAmongTheBitsOfAWeight) {
  EXPECT_THAT(encoding_rows(), HasSubstr("along k | 4.25 |"));                     // 4 + 8 / 32
  EXPECT_THAT(encoding_rows(), HasSubstr("a multiplier for the matrix | 4.5 |"));  // 4 + 8 / 16
  EXPECT_THAT(encoding_rows(), HasSubstr("per 128 x 128 | 8.002 |"));              // 8 + 32 / 16384
}

TEST(FirstDifference, IsNoneBetweenEqualTexts) {
  EXPECT_EQ(first_difference("a\nb\n", "a\nb\n"), "");
}

TEST(FirstDifference, SeesALineThatIsMissingAtTheEnd) {
  EXPECT_EQ(first_difference("a\n", "a\nb\n"), "line 2: \"\", should be \"b\"");
}

}  // namespace
}  // namespace lode::docs
