#include "lode/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lode/text/byte_alphabet.h"
#include "lode/text/test_golden_file.h"

namespace lode::text {
namespace {

// A small tokenizer.json: the parts that a test does not name are these.
struct File {
  std::string model = R"("vocab":{"a":0,"b":1,"ab":2,"\u0120":3},"merges":["a b"])";
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string post = "null";
  std::string decoder = R"({"type":"ByteLevel"})";

  std::string json() const {
    return R"({"added_tokens":)" + added + R"(,"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + pre + R"(,"post_processor":)" + post + R"(,"decoder":)" +
           decoder + R"(,"model":{"type":"BPE",)" + model + "}}";
  }
  Result<Tokenizer> make() const { return Tokenizer::from_json(json()); }
};

using Ids = std::vector<std::int32_t>;

std::string added_token(int id, const std::string& content, const std::string& flags = "") {
  std::string json = R"({"id":)" + std::to_string(id) + R"(,"content":")" + content + '"';
  for (const char* flag : {"special", "single_word", "lstrip", "rstrip", "normalized"}) {
    const bool set = flags.find(flag) != flags.npos;
    json += std::string(",\"") + flag + "\":" + (set ? "true" : "false");
  }
  return json + "}";
}

void expect_refused(const File& file, Code code, const std::string& says) {
  const auto made = file.make();
  ASSERT_FALSE(made) << file.json();
  EXPECT_EQ(made.error().code, code) << to_string(made.error());
  EXPECT_THAT(to_string(made.error()), testing::HasSubstr(says));
}

TEST(Tokenizer, MergesInEitherFormAreTheSame) {
  File pairs;
  pairs.model = R"("vocab":{"a":0,"b":1,"ab":2,"\u0120":3},"merges":[["a","b"]])";
  EXPECT_EQ(File().make()->encode("ab ab", {}), (Ids{2, 3, 2}));
  EXPECT_EQ(pairs.make()->encode("ab ab", {}), (Ids{2, 3, 2}));
}

TEST(Tokenizer, MergesMayStandBeforeTheVocabulary) {
  File file;
  file.model = R"("merges":["a b"],"vocab":{"a":0,"b":1,"ab":2})";
  EXPECT_EQ(file.make()->encode("ab", {}), (Ids{2}));
}

TEST(Tokenizer, BytesWithoutATokenAreLeftOutOrUnknown) {
  EXPECT_EQ(File().make()->encode("acxb", {}), (Ids{2}));  // a and b are neighbours then
  File file;
  file.model += R"(,"unk_token":"\u0120")";
  EXPECT_EQ(file.make()->encode("acxb", {}), (Ids{0, 3, 3, 1}));
  file.model += R"(,"fuse_unk":true)";
  EXPECT_EQ(file.make()->encode("acxb", {}), (Ids{0, 3, 1}));
}

TEST(Tokenizer, AWordOfTheVocabularyNeedsNoMergeWhenMergesAreIgnored) {
  File file;
  file.model = R"("vocab":{"a":0,"b":1,"ba":2},"merges":[])";
  EXPECT_EQ(file.make()->encode("ba", {}), (Ids{1, 0}));
  file.model += R"(,"ignore_merges":true)";
  EXPECT_EQ(file.make()->encode("ba", {}), (Ids{2}));
}

TEST(Tokenizer, TheLongestAddedTokenWins) {
  File file;
  file.added = "[" + added_token(4, "<x") + "," + added_token(5, "<x>") + "]";
  EXPECT_EQ(file.make()->encode("a<x>b<xa", {}), (Ids{0, 5, 1, 4, 0}));
}

TEST(Tokenizer, PrefixSpaceStandsBeforeEachPiece) {
  File file;
  file.pre = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})";
  const auto tokenizer = file.make();
  const Encoding got = tokenizer->encode_with_offsets("ab", {});
  EXPECT_EQ(got.ids, (Ids{3, 2}));
  EXPECT_EQ(got.offsets, (std::vector<TextOffset>{{0, 1}, {0, 2}}));
  EXPECT_EQ(tokenizer->encode(" ab", {}), (Ids{3, 2}));
}

TEST(Tokenizer, TemplatesOfASequenceStandInsideEachOther) {
  File file;
  const auto around = [](int id) {
    return R"({"type":"TemplateProcessing","special_tokens":{"s":{"ids":[)" + std::to_string(id) +
           R"(]}},"single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}},)"
           R"({"SpecialToken":{"id":"s"}}]})";
  };
  file.post = R"({"type":"Sequence","processors":[)" + around(0) + "," + around(1) + "]}";
  EXPECT_EQ(file.make()->encode("ab", {.add_special_tokens = true}), (Ids{1, 0, 2, 0, 1}));
}

TEST(Tokenizer, IdsMayHaveHoles) {
  File file;
  file.model = R"("vocab":{"a":7,"b":2000000000,"ab":9},"merges":["a b"])";
  const auto tokenizer = file.make();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("aabb", {}), (Ids{7, 9, 2'000'000'000}));
  EXPECT_EQ(tokenizer->decode(Ids{8, 9, -1, 7, 2'147'483'647}, false), "aba");
  EXPECT_EQ(tokenizer->vocab_size(), 2'000'000'001U);
  EXPECT_LT(tokenizer->held_bytes(), 20'000U);
}

TEST(Tokenizer, TokensAreFoundByTheirText) {
  const auto tokenizer = File().make();
  EXPECT_EQ(tokenizer->token_to_id("ab"), 2);
  EXPECT_EQ(tokenizer->token_to_id("\u0120"), 3);
  EXPECT_EQ(tokenizer->token_to_id("none"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_bytes(3), " ");
  EXPECT_EQ(tokenizer->id_to_bytes(4), std::nullopt);
}

TEST(Tokenizer, WhatItCannotFollowIsRefusedByItsPath) {
  File file;
  file.pre = R"({"type":"Sequence","pretokenizers":[{"type":"Metaspace"}]})";
  expect_refused(file, Code::kUnsupported, "pre_tokenizer.pretokenizers[0].type");
  file.pre = R"({"type":"Split","pattern":{"Regex":"\\w+x"},"behavior":"Isolated"})";
  expect_refused(file, Code::kUnsupported, "found \\w+x");
  file.pre = R"({"type":"Split","pattern":{"String":" "},"behavior":"Isolated"})";
  expect_refused(file, Code::kUnsupported, "pre_tokenizer.pattern");
  file.pre = R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Contiguous"})";
  expect_refused(file, Code::kUnsupported, "pre_tokenizer.behavior");
  file.pre = R"({"type":"Digits","individual_digits":true})";
  expect_refused(file, Code::kUnsupported, "pre_tokenizer");
  file.pre = "null";
  expect_refused(file, Code::kUnsupported, "pre_tokenizer");
  expect_refused({.normalizer = R"({"type":"NFKC"})"}, Code::kUnsupported, "normalizer.type");
  expect_refused({.post = R"({"type":"BertProcessing"})"}, Code::kUnsupported, "post_processor");
  expect_refused({.decoder = "null"}, Code::kUnsupported, "decoder");
  expect_refused({.decoder = R"({"type":"WordPiece"})"}, Code::kUnsupported, "decoder.type");
  const std::string model = File().model;
  expect_refused({.model = model + R"(,"byte_fallback":true)"}, Code::kUnsupported,
                 "model.byte_fallback");
  expect_refused({.model = model + R"(,"end_of_word_suffix":"</w>")"}, Code::kUnsupported,
                 "model.end_of_word_suffix");
  expect_refused({.model = R"("vocab":[["a",0.5]])"}, Code::kUnsupported, "model.vocab");
  const auto other = Tokenizer::from_json(R"({"model":{"type":"WordLevel","vocab":{}}})");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kUnsupported);
}

TEST(Tokenizer, DamagedModelsAreRefused) {
  const auto damaged = [](std::string model, const std::string& says) {
    expect_refused({.model = std::move(model)}, Code::kInvalidSource, says);
  };
  damaged(R"("vocab":{"a":0},"merges":["a b"])", "model.merges[0]");
  damaged(R"("vocab":{"a":0,"b":1},"merges":["a b"])", "\"ab\"");
  damaged(R"("vocab":{"a":0},"merges":["a"])", "model.merges[0]");
  damaged(R"("vocab":{"a":0},"merges":["a b c"])", "model.merges[0]");
  damaged(R"("vocab":{"a":0},"merges":[["a"]])", "model.merges[0]");
  damaged(R"("vocab":{"a":0},"merges":[["a","a","a"]])", "model.merges[0]");
  damaged(R"("vocab":{"a":0},"merges":[[["a"]]])", "model.merges[0]");
  damaged(R"("vocab":{"a":0},"merges":[7])", "model.merges[0]");
  damaged(R"("vocab":{"a":-1},"merges":[])", "model.vocab[\"a\"]");
  damaged(R"("vocab":{"a":2147483648},"merges":[])", "model.vocab[\"a\"]");
  damaged(R"("vocab":{"a":0.5},"merges":[])", "model.vocab[\"a\"]");
  damaged(R"("vocab":{"a":{"b":1}},"merges":[])", "model.vocab");
  damaged(R"("vocab":{"a":0,"b":0},"merges":[])", "id 0");
  damaged(R"("vocab":{"a":0,"a":1},"merges":[])", "twice");
  damaged(R"("vocab":{"a":0},"merges":[],"unk_token":"z")", "model.unk_token");
}

TEST(Tokenizer, DamagedPartsAreRefused) {
  const auto added = [](std::string tokens, Code code, const std::string& says) {
    expect_refused({.added = "[" + tokens + "]"}, code, says);
  };
  added(R"({"id":9})", Code::kInvalidSource, "added_tokens[0].content");
  added(R"({"id":9,"content":"x"})", Code::kInvalidSource, "added_tokens[0].special");
  added(added_token(0, "x"), Code::kInvalidSource, "id 0");
  added(added_token(9, "a"), Code::kInvalidSource, "two ids");
  added(added_token(9, std::string(1025, 'x')), Code::kUnsupported, "added_tokens[0].content");
  expect_refused({.added = "7"}, Code::kInvalidSource, "added_tokens");
  const std::string head = R"({"type":"TemplateProcessing","special_tokens":{"s":{"ids":[99]}},)";
  expect_refused({.post = head + R"("single":[{"SpecialToken":{"id":"s"}}]})"},
                 Code::kInvalidSource, "one Sequence");
  expect_refused(
      {.post = head + R"("single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}]})"},
      Code::kInvalidSource, "99");
  expect_refused({.post = head + R"("single":[{"SpecialToken":{"id":"t"}}]})"},
                 Code::kInvalidSource, "special_tokens");
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"model":7})", R"({"model":[]})"}) {
    EXPECT_FALSE(Tokenizer::from_json(text)) << text;
  }
}

TEST(Tokenizer, ASmallFileCannotAskForManyTokensOrStages) {
  std::string ids = "0";
  for (int i = 0; i < 64; ++i) ids += ",0";
  expect_refused({.post = R"({"type":"TemplateProcessing","special_tokens":{"s":{"ids":[)" + ids +
                          R"(]}},"single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}]})"},
                 Code::kUnsupported, "64 tokens");
  std::string stages = R"({"type":"Digits"})";
  for (int i = 0; i < 16; ++i) stages += R"(,{"type":"Digits"})";
  expect_refused({.pre = R"({"type":"Sequence","pretokenizers":[)" + stages + "]}"},
                 Code::kUnsupported, "16 stages");
}

// The densest vocabulary there is: every token of one and two letters, with the shortest ids.
TEST(Tokenizer, TheBoundHoldsForTheDensestFile) {
  std::string vocab;
  std::string merges;
  int id = 0;
  for (char a = '!'; a <= '~'; ++a) {
    if (a == '"' || a == '\\') continue;
    vocab += std::string(vocab.empty() ? "\"" : ",\"") + a + "\":" + std::to_string(id++);
  }
  for (char a = '!'; a <= '~'; ++a) {
    for (char b = '!'; b <= '~'; ++b) {
      if (a == '"' || a == '\\' || b == '"' || b == '\\') continue;
      vocab += std::string(",\"") + a + b + "\":" + std::to_string(id++);
      merges += std::string(merges.empty() ? "\"" : ",\"") + a + " " + b + "\"";
    }
  }
  const File file = {.model = R"("vocab":{)" + vocab + R"(},"merges":[)" + merges + "]"};
  const auto tokenizer = file.make();
  ASSERT_TRUE(tokenizer) << to_string(tokenizer.error());
  EXPECT_LE(tokenizer->held_bytes(), tokenizer_bytes_bound(file.json().size()));
  EXPECT_EQ(tokenizer_bytes_bound(UINT64_MAX), UINT64_MAX);
}

TEST(ByteAlphabet, EveryByteSurvivesTheRoundTrip) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(spelled_bytes(spell(bytes)), bytes);
  EXPECT_EQ(spell(" \n"), "\u0120\u010A");  // as vocabularies write them
  EXPECT_EQ(spelled_bytes("a b"), std::nullopt);
}

TEST(Tokenizer, ThatOfTheEmbeddedModelGivesEveryTextBack) {
  std::ifstream in(LODE_SOURCE_DIR "/models/story-moe-nvfp4/tokenizer.json", std::ios::binary);
  std::ostringstream json;
  json << in.rdbuf();
  const auto made = Tokenizer::from_json(json.str());
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_EQ(made->vocab_size(), 4096U);
  EXPECT_LE(made->held_bytes(), tokenizer_bytes_bound(json.str().size()));
  const std::string story =
      "Once upon a time there was a caf\u00E9, and \u201Cnobody\u201D went in.\r\n\t \u4F60\u597D "
      "\U0001F600";
  EXPECT_EQ(made->decode(made->encode(story, {}), false), story);
  EXPECT_THAT(made->encode("<|im_start|>", {}), testing::ElementsAre(4094));
  EXPECT_THAT(made->encode("<|im_start|>", {.parse_special = false}),
              testing::Not(testing::Contains(4094)));
}

// One character over and over makes the longest words: what is quadratic would show here.
TEST(Tokenizer, ALongRunOfOneCharacterIsReadInOneGo) {
  const auto made = Tokenizer::from_json(golden::read_file("tokenizers/o200k/tokenizer.json"));
  ASSERT_TRUE(made);
  for (const char* unit : {" ", "a", "\n", "1", "<", "'", "\u0301", "\u4E16", "\u02B0A"}) {
    std::string text;
    while (text.size() < 250'000) text += unit;
    EXPECT_EQ(made->decode(made->encode(text, {}), false), text);
  }
}

}  // namespace
}  // namespace lode::text
