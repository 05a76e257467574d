#include "lode/base/result.h"

#include <gtest/gtest.h>

namespace lode {
namespace {

TEST(ErrorText, IsOneLineWithEveryPartThatThereIs) {
  EXPECT_EQ(to_string(Error{.thing = "budget"}), "budget");
  EXPECT_EQ(to_string(Error{.thing = "a", .found = "b"}), "a: b");
  EXPECT_EQ(to_string(Error{.thing = "a", .wanted = "b", .found = "c", .where = "d", .hint = "e"}),
            "a: want b, found c (d); e");
}

// Whatever stands in a file may end up in a message.
TEST(ErrorText, GivesATerminalNoOrders) {
  const Error error{.thing = "\x1b]0;title\a",
                    .wanted = "\r",
                    .found = "\x1b[31m\nlode: done",
                    .where = "\x7f",
                    .hint = "caf\xc3\xa9"};
  EXPECT_EQ(to_string(error), "?]0;title?: want ?, found ?[31m?lode: done (?); caf\xc3\xa9");
}

TEST(ErrorText, CutsAPartThatNobodyWouldRead) {
  const std::string text = to_string(Error{.thing = "a", .found = std::string(100000, '(')});
  EXPECT_EQ(text, "a: " + std::string(2000, '(') + "...");
  // 1 + 2 * 1000 bytes: byte 2000 is the second one of a character.
  std::string accents = "x";
  for (int i = 0; i < 1000; ++i) accents += "\xc3\xa9";
  EXPECT_EQ(to_string(Error{.thing = accents}), accents.substr(0, 1999) + "...");
}

}  // namespace
}  // namespace lode
