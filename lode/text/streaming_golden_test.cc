#include <gtest/gtest.h>

#include <map>

#include "lode/text/stop_matcher.h"
#include "lode/text/stream_decoder.h"
#include "lode/text/test_golden_file.h"

namespace lode::text {
namespace {

const json::Value& streaming() {
  static const json::Value file = golden::read_json("streaming.json");
  return file;
}

TEST(StreamingGolden, CharactersGoOutWhenTheyAreComplete) {
  for (const json::Value& test : golden::items(streaming(), "bytes")) {
    Utf8Stream stream;
    std::vector<std::string> deltas;
    for (const std::string& chunk : golden::texts(test, "chunks")) {
      deltas.push_back(stream.push(golden::from_hex(chunk)));
    }
    EXPECT_EQ(deltas, golden::texts(test, "deltas")) << json::dump(test);
    EXPECT_EQ(stream.flush(), golden::text(test, "flush")) << json::dump(test);
  }
}

TEST(StreamingGolden, StopStringsEndTheTextWhereverItIsCut) {
  for (const json::Value& test : golden::items(streaming(), "stops")) {
    Utf8Stream stream;
    StopMatcher matcher(golden::texts(test, "stop"), golden::flag(test, "include_stop"));
    std::vector<std::string> deltas;
    std::string text;
    for (const std::string& chunk : golden::texts(test, "chunks")) {
      deltas.push_back(matcher.push(stream.push(golden::from_hex(chunk))));
      text += deltas.back();
    }
    const std::string flush = matcher.push(stream.flush()) + matcher.flush();
    EXPECT_EQ(deltas, golden::texts(test, "deltas")) << json::dump(test);
    EXPECT_EQ(flush, golden::text(test, "flush")) << json::dump(test);
    EXPECT_EQ(text + flush, golden::text(test, "text")) << json::dump(test);
    const std::string* by = test.find("stopped_by")->as_string();
    EXPECT_EQ(matcher.stopped(), by != nullptr) << json::dump(test);
    EXPECT_EQ(matcher.stopped_by(), by == nullptr ? "" : *by) << json::dump(test);
  }
}

TEST(StreamingGolden, TokensGiveTheirTextPieceByPiece) {
  std::map<std::string, Tokenizer> tokenizers;
  for (const char* family : {"gpt2", "qwen3", "o200k"}) {
    auto made = Tokenizer::from_json(
        golden::read_file("tokenizers/" + std::string(family) + "/tokenizer.json"));
    ASSERT_TRUE(made) << to_string(made.error());
    tokenizers.emplace(family, *std::move(made));
  }
  int num_run = 0;
  for (const json::Value& test : golden::items(streaming(), "tokens")) {
    const auto tokenizer = tokenizers.find(golden::text(test, "family"));
    if (tokenizer == tokenizers.end()) continue;
    ++num_run;
    StreamDecoder stream(tokenizer->second, golden::flag(test, "skip_special_tokens"));
    std::vector<std::string> deltas;
    for (const std::int32_t id : golden::ids(test, "ids")) deltas.push_back(stream.push(id));
    EXPECT_EQ(deltas, golden::texts(test, "deltas")) << json::dump(test);
    EXPECT_EQ(stream.flush(), golden::text(test, "flush")) << json::dump(test);
  }
  EXPECT_EQ(num_run, 156);
}

}  // namespace
}  // namespace lode::text
