// Every case that the reference tokeniser computed for these families, exactly.
#include <gtest/gtest.h>

#include <memory>

#include "lode/text/test_golden_file.h"
#include "lode/text/tokenizer.h"

namespace lode::text {
namespace {

class TokenizerGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = "tokenizers/" + std::string(GetParam()) + "/";
    cases_ = golden::read_json(folder_ + "cases.json");
    auto made = Tokenizer::from_json(golden::read_file(folder_ + "tokenizer.json"));
    ASSERT_TRUE(made) << to_string(made.error());
    tokenizer_ = std::make_unique<Tokenizer>(*std::move(made));
  }

  std::string folder_;
  json::Value cases_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

std::vector<std::int32_t> flat(const std::vector<TextOffset>& offsets) {
  std::vector<std::int32_t> out;
  for (const TextOffset& offset : offsets) {
    out.push_back(static_cast<std::int32_t>(offset.begin));
    out.push_back(static_cast<std::int32_t>(offset.end));
  }
  return out;
}

TEST_P(TokenizerGolden, IdsAndOffsetsEqualTheReference) {
  ASSERT_GT(golden::items(cases_, "cases").size(), 400U);
  for (const json::Value& test : golden::items(cases_, "cases")) {
    const std::string& text = golden::text(test, "text");
    const auto want = golden::ids(test, "ids");
    const Encoding got = tokenizer_->encode_with_offsets(text, {});
    EXPECT_EQ(got.ids, want) << json::dump(test);
    EXPECT_EQ(flat(got.offsets), golden::ids(test, "offsets")) << json::dump(test);
    EXPECT_EQ(tokenizer_->encode(text, {}), want) << json::dump(test);
  }
}

TEST_P(TokenizerGolden, SpecialTokensInTheTextAreTextWhenNotParsed) {
  for (const json::Value& test : golden::items(cases_, "cases")) {
    const auto want = golden::ids(test, test.find("ids_plain") ? "ids_plain" : "ids");
    const auto got = tokenizer_->encode(golden::text(test, "text"), {.parse_special = false});
    EXPECT_EQ(got, want) << json::dump(test);
  }
}

TEST_P(TokenizerGolden, AddedSpecialTokensStandAroundTheIds) {
  const json::Value& added = *cases_.find("add_special_tokens");
  auto want = golden::ids(added, "prefix");
  const std::string text = golden::text(golden::items(cases_, "cases").front(), "text");
  const auto inner = tokenizer_->encode(text, {});
  want.insert(want.end(), inner.begin(), inner.end());
  const auto suffix = golden::ids(added, "suffix");
  want.insert(want.end(), suffix.begin(), suffix.end());
  EXPECT_EQ(tokenizer_->encode(text, {.add_special_tokens = true}), want);
}

TEST_P(TokenizerGolden, DecodingGivesTheReferenceText) {
  for (const json::Value& test : golden::items(cases_, "cases")) {
    const auto ids = golden::ids(test, "ids");
    const std::string decoded = golden::text(test, test.find("decoded") ? "decoded" : "text");
    EXPECT_EQ(tokenizer_->decode(ids, false), decoded) << json::dump(test);
    const std::string skipped =
        test.find("decoded_skip") ? golden::text(test, "decoded_skip") : decoded;
    EXPECT_EQ(tokenizer_->decode(ids, true), skipped) << json::dump(test);
  }
  for (const json::Value& test : golden::items(cases_, "decode")) {
    const auto ids = golden::ids(test, "ids");
    EXPECT_EQ(tokenizer_->decode(ids, false), golden::text(test, "text")) << json::dump(test);
    EXPECT_EQ(tokenizer_->decode(ids, true), golden::text(test, "text_skip")) << json::dump(test);
  }
}

TEST_P(TokenizerGolden, IllFormedBytesAreReadAsReplacementCharacters) {
  for (const json::Value& test : golden::items(cases_, "invalid_utf8")) {
    const std::string bytes = golden::from_hex(golden::text(test, "bytes"));
    EXPECT_EQ(tokenizer_->encode(bytes, {}), golden::ids(test, "ids")) << json::dump(test);
    EXPECT_EQ(tokenizer_->encode(golden::text(test, "lossy"), {}), golden::ids(test, "ids"));
  }
}

TEST_P(TokenizerGolden, TheTextOfAChatGivesItsIds) {
  for (const json::Value& test : golden::items(cases_, "chat")) {
    EXPECT_EQ(tokenizer_->encode(golden::text(test, "text"), {}), golden::ids(test, "ids"))
        << json::dump(test);
  }
}

TEST_P(TokenizerGolden, HoldsWhatTheBoundOfItsFileAllows) {
  const std::uint64_t file_bytes = golden::read_file(folder_ + "tokenizer.json").size();
  EXPECT_LE(tokenizer_->held_bytes(), tokenizer_bytes_bound(file_bytes));
  EXPECT_GT(tokenizer_->making_bytes(), tokenizer_->vocab_size());
  EXPECT_GT(tokenizer_->held_bytes(), 4 * tokenizer_->vocab_size());  // it counts something
  EXPECT_EQ(static_cast<std::int64_t>(tokenizer_->vocab_size()),
            *cases_.find("vocab_size")->as_int());
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGolden,
                         testing::Values("gpt2", "qwen3", "o200k", "llama3", "qwen35",
                                         "deepseek_v3", "kimi_k2", "bailing"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace lode::text
