#include "lode/engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kPrompt = "Once upon a time there was a little";

Settings settings_with(std::uint32_t threads, std::uint32_t chunk_tokens, ops::Mode mode) {
  Settings settings;
  settings.threads = threads;
  settings.chunk_tokens = chunk_tokens;
  settings.mode = mode;
  return settings;
}

// One engine for the tests that do not care how it was made.
const TestEngine& story() {
  static const TestEngine engine =
      start_engine(story_folder(), settings_with(2, 256, ops::Mode::kExact));
  return engine;
}

Request greedy(const TestEngine& engine, std::string_view prompt, std::uint32_t max_new_tokens) {
  Request request;
  request.prompt_ids = (*engine->tokenizer())->encode(prompt, {});
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  return request;
}

Generation continued(const TestEngine& engine, const Request& request, const OnText& on_text = {}) {
  engine->cache().clear();
  auto result = engine->generate(request, on_text);
  EXPECT_TRUE(result) << to_string(result.error());
  return result ? *std::move(result) : Generation{};
}

TEST(Generate, ExactGreedyTextsAreThoseOfTheReference) {
  const json::Value reference = story_reference();
  for (const auto& [prompt, text] : *reference.find("greedy")->as_object()) {
    const Generation result = continued(story(), greedy(story(), prompt, 48));
    EXPECT_EQ(prompt + result.text, *text.as_string());
  }
}

TEST(Generate, TheTextIsTheSameForAnyThreadsAndChunks) {
  for (const ops::Mode mode : {ops::Mode::kExact, ops::Mode::kFast}) {
    std::string first;
    for (const std::uint32_t threads : {1U, 2U, 3U}) {
      for (const std::uint32_t chunk_tokens : {1U, 5U, 256U}) {
        const TestEngine engine =
            start_engine(story_folder(), settings_with(threads, chunk_tokens, mode));
        Request request = greedy(engine, kPrompt, 24);
        request.sampling.temperature = 1;
        request.sampling.seed = 11;
        const std::string text = continued(engine, request).text;
        if (first.empty()) first = text;
        EXPECT_EQ(text, first) << threads << " threads, chunks of " << chunk_tokens;
      }
    }
    EXPECT_NE(first, "");
  }
}

TEST(Generate, EndsAfterAsManyTokensAsAsked) {
  const Generation result = continued(story(), greedy(story(), kPrompt, 7));
  EXPECT_EQ(result.ids.size(), 7U);
  EXPECT_EQ(result.finish, Finish::kLength);
}

TEST(Generate, NoTokensGiveNoText) {
  const Generation result = continued(story(), greedy(story(), kPrompt, 0));
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.finish, Finish::kLength);
}

TEST(Generate, EndsBeforeAStopStringAndLeavesItOut) {
  Request request = greedy(story(), kPrompt, 48);
  const std::string whole = continued(story(), request).text;
  ASSERT_THAT(whole, HasSubstr("good man"));
  request.stops = {"no such text", "od m"};  // inside words, across tokens
  const Generation result = continued(story(), request);
  EXPECT_EQ(result.finish, Finish::kStop);
  EXPECT_EQ(result.text, whole.substr(0, whole.find("od m")));
  EXPECT_LT(result.ids.size(), 48U);
}

TEST(Generate, GivesOutTextThatMightHaveBecomeAStopString) {
  Request request = greedy(story(), kPrompt, 5);
  const std::string whole = continued(story(), request).text;
  request.stops = {whole.substr(whole.size() - 2) + "#"};  // the end of the text begins it
  const Generation result = continued(story(), request);
  EXPECT_EQ(result.finish, Finish::kLength);
  EXPECT_EQ(result.text, whole);
}

TEST(Generate, EndsAtAnEndTokenAndLeavesItsTextOut) {
  Request request = greedy(story(), kPrompt, 10);
  const Generation whole = continued(story(), request);
  request.end_ids = {whole.ids[3]};
  const Generation result = continued(story(), request);
  EXPECT_EQ(result.finish, Finish::kEnd);
  EXPECT_EQ(result.ids, std::vector(whole.ids.begin(), whole.ids.begin() + 4));
  const std::span<const std::int32_t> before(result.ids.data(), 3);
  EXPECT_EQ(result.text, (*story()->tokenizer())->decode(before, true));
}

TEST(Generate, EndsWhereTheContextIsFull) {
  Settings settings;
  settings.context_tokens = 16;
  settings.threads = 1;
  const TestEngine engine = start_engine(story_folder(), settings);
  const Request request = greedy(engine, kPrompt, 100);
  const Generation result = continued(engine, request);
  EXPECT_EQ(result.finish, Finish::kContext);
  // The last token drawn needs no place: nothing comes after it.
  EXPECT_EQ(request.prompt_ids.size() + result.ids.size(), 17U);
}

TEST(Generate, StopsWhenTheListenerSaysNo) {
  int pieces = 0;
  const Generation result = continued(story(), greedy(story(), kPrompt, 48),
                                      [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(result.finish, Finish::kCancelled);
  EXPECT_EQ(pieces, 3);
}

TEST(Generate, ThePiecesAreTheText) {
  std::string pieces;
  const Generation result =
      continued(story(), greedy(story(), kPrompt, 20), [&](std::string_view piece) {
        pieces += piece;
        return true;
      });
  EXPECT_EQ(pieces, result.text);
}

TEST(Generate, ContinuesWhatTheCacheHolds) {
  const Request whole = greedy(story(), kPrompt, 12);
  const Generation want = continued(story(), whole);
  Request first = whole;
  first.prompt_ids.resize(3);
  first.max_new_tokens = 0;
  continued(story(), first);
  Request rest = whole;
  rest.prompt_ids.erase(rest.prompt_ids.begin(), rest.prompt_ids.begin() + 3);
  const auto result = story()->generate(rest, nullptr);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->ids, want.ids);
}

TEST(Generate, TheSeedDecidesTheText) {
  Request request = greedy(story(), kPrompt, 16);
  request.sampling.temperature = 1;
  request.sampling.seed = 1;
  const std::string one = continued(story(), request).text;
  EXPECT_EQ(continued(story(), request).text, one);
  request.sampling.seed = 2;
  EXPECT_NE(continued(story(), request).text, one);
}

TEST(Generate, RefusesWhatCannotBeAPrompt) {
  story()->cache().clear();
  const std::vector<std::int32_t> long_prompt(257, 1);
  for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{},
                                               long_prompt,
                                               std::vector<std::int32_t>{1, 4096},
                                               std::vector<std::int32_t>{-1},
                                               {std::numeric_limits<std::int32_t>::max()}}) {
    const auto result = story()->generate(Request{.prompt_ids = ids}, nullptr);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kUsage);
    EXPECT_EQ(story()->cache().tokens(), 0U);
  }
}

TEST(CheckPrompt, SaysHowMuchRoomThereIs) {
  const std::vector<std::int32_t> ids(9, 1);
  const Status refused = check_prompt(ids, 8, 4096);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().wanted, StartsWith("at most 8 tokens"));
  EXPECT_EQ(refused.error().found, "9");
  EXPECT_TRUE(check_prompt(ids, 9, 4096));
}

}  // namespace
}  // namespace lode::engine
