#include "lode/cli/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lode::cli {
namespace {

using ::testing::ElementsAre;

TEST(ParseIds, TakesAListOrAnObjectWithOne) {
  EXPECT_THAT(*parse_ids("[1, 2, 30000]"), ElementsAre(1, 2, 30000));
  EXPECT_THAT(*parse_ids("{\"ids\": [7]}"), ElementsAre(7));
  EXPECT_THAT(*parse_ids("[]"), ElementsAre());
}

TEST(ParseIds, RefusesWhatIsNoId) {
  for (const char* text : {"[1, -1]", "[1.5]", "[\"1\"]", "[4294967296]", "[null]"}) {
    const auto ids = parse_ids(text);
    ASSERT_FALSE(ids) << text;
    EXPECT_EQ(ids.error().code, Code::kUsage) << text;
  }
  for (const char* text : {"7", "{\"id\": [7]}", "[1,"}) {
    const auto ids = parse_ids(text);
    ASSERT_FALSE(ids) << text;
    EXPECT_EQ(ids.error().code, Code::kInvalidSource) << text;
  }
}

TEST(TextFile, ComesBackAsItWasWritten) {
  const std::string path = ::testing::TempDir() + "text_file";
  const std::string text("a\0b\n\xff", 5);
  ASSERT_TRUE(write_text_file(path, text));
  EXPECT_EQ(*read_text_file(path), text);
}

TEST(TextFile, NamesTheFileThatIsNotThere) {
  const auto text = read_text_file("/nowhere/at/all");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kIo);
  EXPECT_EQ(text.error().thing, "/nowhere/at/all");
}

TEST(TextFile, IsReadUpToTheBytesThatWereAllowed) {
  const std::string path = ::testing::TempDir() + "text_file_bounded";
  ASSERT_TRUE(write_text_file(path, "12345"));
  EXPECT_EQ(*read_text_file(path, 5), "12345");
  const auto more = read_text_file(path, 4);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kUsage);
  EXPECT_EQ(more.error().thing, path);
  EXPECT_FALSE(read_text_file("/dev/zero", 1 << 20)) << "endless";
}

}  // namespace
}  // namespace lode::cli
