// Properties of the streams: no cutting changes the result, and it is what one look at the whole
// text gives.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "lode/text/stop_matcher.h"
#include "lode/text/stream_decoder.h"
#include "lode/text/test_golden_file.h"
#include "lode/text/utf8.h"

namespace lode::text {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

// Text of few different characters of one to four bytes, so that matches overlap.
std::string random_text(Random& random, std::size_t length) {
  static const std::vector<std::string> characters = {"a", "b", "\u00E9", "\u4E16", "\U0001F600"};
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += characters[below(random, characters.size())];
  return text;
}

std::vector<std::string> random_cuts(Random& random, const std::string& bytes) {
  std::vector<std::string> chunks;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = 1 + below(random, 5);
    chunks.push_back(bytes.substr(at, length));
    at += length;
  }
  return chunks;
}

// The rule read literally: every end of the text in turn, every stop string at that end.
std::string text_before_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      const bool ends = std::string_view(text).substr(0, end).ends_with(stop);
      if (ends && stop.size() > longest) longest = stop.size();
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(Streaming, StopStringsAreFoundHoweverTheTextIsCut) {
  Random random(1);
  int num_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random, below(random, 30));
    std::vector<std::string> stops;
    for (std::size_t i = below(random, 4); i > 0; --i) {
      stops.push_back(random_text(random, 1 + below(random, 4)));
    }
    Utf8Stream stream;
    StopMatcher matcher(stops);
    std::string got;
    for (const std::string& chunk : random_cuts(random, text)) {
      got += matcher.push(stream.push(chunk));
      ASSERT_TRUE(is_well_formed_utf8(got));
    }
    got += matcher.push(stream.flush()) + matcher.flush();
    ASSERT_EQ(got, text_before_stop(text, stops)) << round;
    num_stopped += matcher.stopped() ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 500);
}

TEST(Streaming, IllFormedBytesGiveTheSameTextHoweverTheyAreCut) {
  Random random(2);
  const std::string alphabet = "a\x80\xBF\xC3\xE0\xA0\xED\xEF\xF0\x90\xF4\xFF";
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (std::size_t i = below(random, 12); i > 0; --i) {
      bytes.push_back(alphabet[below(random, alphabet.size())]);
    }
    Utf8Stream stream;
    std::string got;
    for (const std::string& chunk : random_cuts(random, bytes)) got += stream.push(chunk);
    ASSERT_EQ(got + stream.flush(), lossy_utf8(bytes)) << round;
  }
}

TEST(Streaming, TokensOneByOneGiveTheWholeText) {
  const auto made = Tokenizer::from_json(golden::read_file("tokenizers/o200k/tokenizer.json"));
  ASSERT_TRUE(made);
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = below(random, 20); i > 0; --i) {
      const char32_t most = std::array<char32_t, 4>{0x80, 0x800, 0xD800, 0x10FFFF}[random() % 4];
      char32_t c = static_cast<char32_t>(random()) % most;
      if (c >= 0xD800 && c < 0xE000) c = '?';
      append_utf8(c, text);
    }
    StreamDecoder stream(*made, false);
    std::string got;
    for (const std::int32_t id : made->encode(text, {})) {
      got += stream.push(id);
      ASSERT_TRUE(is_well_formed_utf8(got));
    }
    ASSERT_EQ(got + stream.flush(), text) << round;
  }
}

TEST(Streaming, AnEmptyStopStringNeverStops) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_FALSE(matcher.stopped());
}

TEST(Streaming, NothingGoesOutAfterAStop) {
  StopMatcher matcher({"b"});
  EXPECT_EQ(matcher.push("ab"), "a");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_EQ(matcher.stopped_by(), "b");
}

TEST(Streaming, ACutCharacterAtTheEndIsOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("x\xF0\x9F\x98"), "x");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
}

}  // namespace
}  // namespace lode::text
