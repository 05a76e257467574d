#include "lode/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace lode::json {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string fault_of(std::string_view text, const Limits& limits = {}) {
  const Result<Value> result = parse(text, limits);
  if (result) return "accepted";
  EXPECT_EQ(result.error().code, Code::kInvalidSource);
  return to_string(result.error());
}

Value parsed(std::string_view text) {
  Result<Value> result = parse(text);
  EXPECT_TRUE(result.has_value()) << text;
  return result ? *std::move(result) : Value();
}

TEST(Json, KeepsIntegersIntegersToBothEndsOf64Bits) {
  const Value value = parsed("[-9223372036854775808, 9223372036854775807, 18446744073709551615]");
  const Array& items = *value.as_array();
  EXPECT_EQ(*items[0].as_int(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(*items[1].as_int(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(items[2].as_int(), nullptr);
  EXPECT_EQ(*items[2].as_big_uint(), std::numeric_limits<std::uint64_t>::max());
}

TEST(Json, MakesADoubleOfWhatIsWrittenAsOneOrTooLarge) {
  const Value value = parsed("[1.0, 1e2, 18446744073709551616]");
  const Array& items = *value.as_array();
  for (const Value& item : items) EXPECT_FALSE(item.is_integer());
  EXPECT_EQ(items[1].number(), 100.0);
  EXPECT_EQ(items[2].number(), 18446744073709551616.0);
}

TEST(Json, KeepsTheOrderOfNames) {
  const Value value = parsed(R"({"b":1,"a":{"z":[],"y":null}})");
  const Object& members = *value.as_object();
  EXPECT_EQ(members[0].first, "b");
  EXPECT_EQ(members[1].first, "a");
  EXPECT_EQ(value.find("a")->find("z")->kind(), "array");
  EXPECT_EQ(value.find("c"), nullptr);
  EXPECT_EQ(value.find("b")->find("x"), nullptr);
}

TEST(Json, TakesWhiteSpaceAroundTheValueButNothingElse) {
  EXPECT_TRUE(parse(" \t\r\n{} \n").has_value());
  EXPECT_NE(fault_of("{} {}"), "accepted");
  EXPECT_NE(fault_of("{},"), "accepted");
  EXPECT_NE(fault_of(""), "accepted");
  EXPECT_NE(fault_of("  "), "accepted");
}

TEST(Json, RefusesNulBytesEverywhere) {
  using namespace std::string_literals;
  EXPECT_THAT(fault_of("{}\0"s), HasSubstr("NUL"));
  EXPECT_THAT(fault_of("\0{}"s), HasSubstr("NUL"));
  EXPECT_THAT(fault_of("{}\0\0 garbage"s), HasSubstr("NUL"));
  EXPECT_NE(fault_of("[\"a\0b\"]"s), "accepted");
}

TEST(Json, RefusesAByteOrderMark) { EXPECT_NE(fault_of("\xEF\xBB\xBF{}"), "accepted"); }

TEST(Json, RefusesWhatRfc8259DoesNotHave) {
  for (const char* text : {"{'a':1}", "[1,]", "{\"a\":1,}", "// x\n{}", "NaN", "Infinity", "01",
                           "+1", ".5", "1.", "[1 2]", "{\"a\" 1}", "\"\t\"", "\"\\x41\"", "tru"}) {
    EXPECT_NE(fault_of(text), "accepted") << text;
  }
}

TEST(Json, RefusesBadUtf8AndLoneSurrogates) {
  for (const char* text : {"\"\xFF\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xF5\x80\x80\x80\"",
                           "\"\xE2\x82\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\""}) {
    EXPECT_NE(fault_of(text), "accepted") << text;
  }
  EXPECT_EQ(*parsed("\"\\ud83d\\ude00\"").as_string(), "\xF0\x9F\x98\x80");
}

TEST(Json, RefusesDuplicateNamesWithinOneObjectOnly) {
  EXPECT_THAT(fault_of(R"({"a":1,"b":2,"a":3})"), HasSubstr("\"a\" twice"));
  EXPECT_THAT(fault_of(R"({"x":[{"k":1,"k":1}]})"), HasSubstr("\"k\" twice"));
  EXPECT_THAT(fault_of(R"({"a":1,"\u0061":2})"), HasSubstr("\"a\" twice"));
  EXPECT_TRUE(parse(R"({"a":{"a":1},"b":{"a":1}, "c":[{"a":1},{"a":2}]})").has_value());
}

TEST(Json, FindsADuplicateAmongManyNames) {
  std::string text = "{";
  for (int i = 0; i < 5000; ++i) text += "\"name" + std::to_string(i) + "\":0,";
  EXPECT_TRUE(parse(text + "\"other\":0}").has_value());
  EXPECT_THAT(fault_of(text + "\"name17\":0}"), HasSubstr("\"name17\" twice"));
}

TEST(Json, MessagesDoNotRepeatControlCharactersOrEndlessNames) {
  EXPECT_THAT(fault_of("{\"\\u001b[2J\":1,\"\\u001b[2J\":1}"), HasSubstr("?[2J"));
  const std::string name(10'000, 'n');
  EXPECT_LT(fault_of("{\"" + name + "\":1,\"" + name + "\":1}").size(), 500U);
}

TEST(Json, LimitsDepth) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse(nested(64)).has_value());
  EXPECT_THAT(fault_of(nested(65)), HasSubstr("nesting deeper than 64"));
  EXPECT_THAT(fault_of(std::string(1'000'000, '[')), HasSubstr("nesting"));
  EXPECT_TRUE(parse("[[[]]]", {.max_depth = 3}).has_value());
  EXPECT_NE(fault_of("[[[{}]]]", {.max_depth = 3}), "accepted");
}

TEST(Json, LimitsTheTextAndEachToken) {
  EXPECT_NE(fault_of("[1,2]", {.max_bytes = 4}), "accepted");
  EXPECT_TRUE(parse("[1,2]", {.max_bytes = 5}).has_value());
  const std::string text = "[\"" + std::string(100, 'x') + "\"]";
  EXPECT_TRUE(parse(text, {.max_token_bytes = 110}).has_value());
  EXPECT_THAT(fault_of(text, {.max_token_bytes = 90}), HasSubstr("longer than 90 bytes"));
}

// Text in pieces of a chosen size.
class Chopped final : public Source {
 public:
  Chopped(std::string_view text, std::size_t size) : text_(text), size_(size) {}
  Result<std::string_view> next() override {
    const std::string_view piece = text_.substr(0, size_);
    text_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view text_;
  std::size_t size_;
};

class Broken final : public Source {
 public:
  Result<std::string_view> next() override {
    if (first_) {
      first_ = false;
      return std::string_view("{\"a\":");
    }
    return Error{.code = Code::kIo, .thing = "disk"};
  }

 private:
  bool first_ = true;
};

class Recorder final : public Handler {
 public:
  Status begin_object() override { return add("{"); }
  Status name(std::string_view name) override { return add("name " + std::string(name)); }
  Status end_object() override { return add("}"); }
  Status begin_array() override { return add("["); }
  Status end_array() override { return add("]"); }
  Status scalar(Value value) override { return add(dump(value)); }
  std::vector<std::string> events;
  std::string stop_at = "nothing";

 private:
  Status add(std::string event) {
    events.push_back(event);
    if (event == stop_at) return Error{.code = Code::kUnsupported, .thing = event};
    return {};
  }
};

TEST(Json, TextInPiecesMeansTheSameAsInOne) {
  const std::string text = "{\"a\":[1,true,null,\"\xE2\x82\xAC\"],\"b\":{\"c\":-2.5}}";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    Chopped source(text, size);
    Recorder recorder;
    ASSERT_TRUE(parse_streaming(source, recorder).has_value());
    EXPECT_THAT(recorder.events,
                ElementsAre("{", "name a", "[", "1", "true", "null", "\"\xE2\x82\xAC\"", "]",
                            "name b", "{", "name c", "-2.5", "}", "}"));
  }
}

TEST(Json, TheErrorOfASourceComesThrough) {
  Broken source;
  Recorder recorder;
  const Status status = parse_streaming(source, recorder);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kIo);
}

TEST(Json, TheErrorOfAHandlerStopsTheParse) {
  Recorder recorder;
  recorder.stop_at = "name b";
  const Status status = parse_streaming(R"({"a":1,"b":2,"c":3})", recorder);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_EQ(recorder.events.back(), "name b");
}

TEST(Json, DumpsWhatParsesToTheSame) {
  const std::string text =
      R"({"a":[1,-2,18446744073709551615,0.5,1e+300],"b":"\"\\\n\r\t\u0001é","c":{},"d":[]})";
  const Value value = parsed(text);
  EXPECT_EQ(parsed(dump(value)), value);
  EXPECT_EQ(parsed(dump(value, 2)), value);
}

TEST(Json, DumpsDoublesAsDoublesAndWhatJsonLacksAsNull) {
  EXPECT_EQ(dump(Value(1.0)), "1.0");
  EXPECT_EQ(dump(Value(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(dump(Value(0.1)), "0.1");
}

TEST(Json, IndentsByTheNumberAsked) {
  const Value value = object({{"peak", 1}, {"list", Array{1, 2}}});
  EXPECT_EQ(dump(value), R"({"peak":1,"list":[1,2]})");
  EXPECT_EQ(dump(value, 2), "{\n  \"peak\": 1,\n  \"list\": [\n    1,\n    2\n  ]\n}");
}

}  // namespace
}  // namespace lode::json
