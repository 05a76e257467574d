#include "lode/text/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <iterator>
#include <vector>

#include "lode/text/nfc.h"
#include "lode/text/test_golden_file.h"
#include "lode/text/unicode_classes.h"
#include "lode/text/utf8.h"

namespace lode::text {
namespace {

Result<Normalizer> from_text(std::string_view json) {
  return Normalizer::from_json(*json::parse(json), "normalizer");
}

std::string spelled(const std::vector<std::int32_t>& code_points) {
  std::string text;
  for (const std::int32_t c : code_points) append_utf8(static_cast<char32_t>(c), text);
  return text;
}

std::string nfc(const std::vector<std::int32_t>& code_points) {
  static const Normalizer normalizer = *from_text(R"({"type":"NFC"})");
  return normalizer.apply(spelled(code_points), false, 0).text;
}

TEST(Normalizer, ComposesReordersAndExcludesAsUnicodeSays) {
  EXPECT_EQ(nfc({'e', 0x301}), spelled({0xE9}));
  EXPECT_EQ(nfc({0x212B}), spelled({0xC5}));                      // the angstrom sign
  EXPECT_EQ(nfc({'a', 0x301, 0x323}), spelled({0x1EA1, 0x301}));  // by combining class
  EXPECT_EQ(nfc({0x1100, 0x1161, 0x11A8}), spelled({0xAC01}));    // Hangul
  EXPECT_EQ(nfc({0xAC00, 0x11A8}), spelled({0xAC01}));
  EXPECT_EQ(nfc({0x958}), spelled({0x915, 0x93C}));  // a composition exclusion
  EXPECT_EQ(nfc({0x301, 'e'}), spelled({0x301, 'e'}));
}

// NFC of the library on the whole text at once.
std::string utf8proc_nfc(const std::string& text) {
  const std::vector<utf8proc_uint8_t> bytes(text.begin(), text.end());
  std::vector<utf8proc_int32_t> parts(16);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto decomposed =
      utf8proc_decompose(bytes.data(), std::ssize(bytes), parts.data(), std::ssize(parts), options);
  EXPECT_LE(decomposed, std::ssize(parts));
  const auto length = utf8proc_normalize_utf32(parts.data(), decomposed, options);
  parts.resize(static_cast<std::size_t>(length));
  return spelled(parts);
}

// True for a mark that the reference's tables do not know: it stands still like a letter.
bool is_late_mark(std::int32_t c) {
  const auto* property = utf8proc_get_property(c);
  return property->combining_class != 0 && property->decomp_seqindex == 0xFFFF &&
         (class_of(static_cast<char32_t>(c)) & kReorders) == 0;
}

// Where the library and Unicode 9 agree, each character between marks must come out alike.
TEST(Normalizer, EqualsUtf8procButForMarksYoungerThanUnicode9) {
  int num_late_marks = 0;
  for (std::int32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (is_nfc_inert(static_cast<char32_t>(c)) && c % 16 != 0) continue;  // a sample will do
    const std::vector<std::int32_t> text = {'a', 0x301, c, 0x323};
    const bool late = is_late_mark(c);
    num_late_marks += late ? 1 : 0;
    const std::string want = late ? spelled({0xE1, c, 0x323}) : utf8proc_nfc(spelled(text));
    ASSERT_EQ(nfc(text), want) << std::hex << c;
  }
  EXPECT_GT(num_late_marks, 0);
}

TEST(Normalizer, ThePairThatUnicode9DoesNotKnowStaysApart) {
  EXPECT_EQ(nfc({0x11935, 0x11930}), spelled({0x11935, 0x11930}));
  EXPECT_EQ(nfc({0x11938}), spelled({0x11938}));
}

TEST(Normalizer, AComposedCharacterComesFromTheFirstOfItsParts) {
  const SourcedText got = from_text(R"({"type":"NFC"})")->apply("xe\xCC\x81y", true, 10);
  EXPECT_EQ(got.text, "x\xC3\xA9y");
  const std::vector<ByteRange> want = {{10, 11}, {11, 12}, {11, 12}, {14, 15}};
  EXPECT_EQ(got.sources, want);
}

TEST(Normalizer, OtherTypesAreRefusedByTheirPath) {
  const auto refused = from_text(R"({"type":"Sequence","normalizers":[{"type":"NFKC"}]})");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(to_string(refused.error()).find("normalizer.normalizers[0].type"), std::string::npos);
  EXPECT_EQ(from_text("{}").error().code, Code::kInvalidSource);
  EXPECT_TRUE(from_text("null"));
  EXPECT_TRUE(from_text(R"({"type":"Sequence","normalizers":[]})"));
}

}  // namespace
}  // namespace lode::text
