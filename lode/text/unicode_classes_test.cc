#include "lode/text/unicode_classes.h"

#include <gtest/gtest.h>

#include "lode/text/test_golden_file.h"

namespace lode::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;

// Every code point against the lists of the reference, in both directions.
void expect_members(CharClass bits, const std::vector<std::int32_t>& ends) {
  std::vector<bool> want(kCodePoints, false);
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
    for (std::int32_t c = ends[i]; c <= ends[i + 1]; ++c) want[static_cast<std::size_t>(c)] = true;
  }
  for (char32_t c = 0; c < kCodePoints; ++c) {
    ASSERT_EQ((class_of(c) & bits) != 0, want[c]) << "U+" << std::hex << static_cast<unsigned>(c);
  }
}

TEST(UnicodeClasses, EqualTheReferenceForEveryCodePoint) {
  const json::Value file = golden::read_json("tokenizers/unicode.json");
  const json::Value& classes = *file.find("classes");
  const std::pair<const char*, CharClass> all[] = {
      {R"(\p{L})", kLetter}, {R"(\p{Lu})", kUpper},    {R"(\p{Ll})", kLower}, {R"(\p{Lt})", kTitle},
      {R"(\p{Lo})", kOther}, {R"(\p{Lm})", kModifier}, {R"(\p{M})", kMark},   {R"(\p{N})", kNumber},
      {R"(\p{P})", kPunct},  {R"(\p{S})", kSymbol},    {R"(\p{Han})", kHan},  {R"(\s)", kSpace},
      {R"(\w)", kWord}};
  for (const auto& [name, bits] : all) {
    SCOPED_TRACE(name);
    expect_members(bits, golden::ids(classes, name));
  }
  expect_members(kReorders, golden::ids(file, "nfc_nonzero_combining_class"));
}

TEST(UnicodeClasses, WhatIsNoCodePointHasNoClass) {
  EXPECT_EQ(class_of(0x110000), 0);
  EXPECT_EQ(class_of(0xFFFFFFFF), 0);
}

TEST(UnicodeClasses, CharactersAreFoundFromBothSides) {
  const std::string_view text = "a\xC3\xA9\xF0\x9F\x98\x80";
  EXPECT_EQ(char_at(text, 1).code_point, char32_t{0xE9});
  EXPECT_EQ(char_before(text, 3).code_point, char32_t{0xE9});
  EXPECT_EQ(char_before(text, 7).code_point, char32_t{0x1F600});
  EXPECT_EQ(char_before(text, 0).length, 0U);
  EXPECT_EQ(char_at(text, 7).length, 0U);
}

}  // namespace
}  // namespace lode::text
