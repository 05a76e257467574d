#include "lode/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "lode/json/json.h"

namespace lode::engine {
namespace {

const json::Value& samplers() {
  static const json::Value file = [] {
    std::ifstream in(std::string(LODE_GOLDEN_DIR) + "/text/samplers.json");
    std::ostringstream text;
    text << in.rdbuf();
    auto parsed = json::parse(text.str());
    EXPECT_TRUE(parsed);
    return parsed ? *std::move(parsed) : json::Value();
  }();
  return file;
}

float number(const json::Value& value) {
  const std::string* name = value.as_string();
  if (name == nullptr) return static_cast<float>(value.number());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (*name == "nan") return std::numeric_limits<float>::quiet_NaN();
  return *name == "-inf" ? -kInf : kInf;
}

std::vector<float> numbers(const json::Value* array) {
  std::vector<float> out;
  for (const json::Value& value : *array->as_array()) out.push_back(number(value));
  return out;
}

std::vector<std::int32_t> ids(const json::Value* array) {
  std::vector<std::int32_t> out;
  if (array == nullptr) return out;
  for (const json::Value& value : *array->as_array()) {
    out.push_back(static_cast<std::int32_t>(*value.as_int()));
  }
  return out;
}

SamplingParams params_of(const json::Value& test) {
  SamplingParams params;
  const auto read = [&](const char* name, float& field) {
    if (const json::Value* value = test.find(name)) field = number(*value);
  };
  read("temperature", params.temperature);
  read("top_p", params.top_p);
  read("min_p", params.min_p);
  read("repetition_penalty", params.repetition_penalty);
  read("presence_penalty", params.presence_penalty);
  read("frequency_penalty", params.frequency_penalty);
  if (const json::Value* top_k = test.find("top_k")) {
    params.top_k = static_cast<int>(*top_k->as_int());
  }
  if (const json::Value* bias = test.find("logit_bias")) {
    for (const auto& [id, value] : *bias->as_object()) {
      params.logit_bias.emplace_back(std::stoi(id), number(value));
    }
  }
  return params;
}

struct Case {
  explicit Case(const json::Value& test)
      : logits(numbers(test.find("logits"))),
        params(params_of(test)),
        prompt(ids(test.find("prompt"))),
        output(ids(test.find("output"))) {}
  TokenHistory history() const { return {prompt, output}; }
  std::vector<float> logits;
  SamplingParams params;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> output;
};

std::vector<float> sorted(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(SamplerGolden, ProbabilitiesEqualTheReference) {
  const float tolerance = number(*samplers().find("tolerance"));
  int num_run = 0;
  for (const json::Value& test : *samplers().find("cases")->as_array()) {
    if (test.find("probs") == nullptr) continue;
    SCOPED_TRACE(json::dump(test));
    ++num_run;
    const Case c(test);
    const auto got = filtered_probabilities(c.logits, c.params, c.history());
    ASSERT_TRUE(got) << to_string(got.error());
    const bool tie = test.find("tie_at_cut") != nullptr;
    const auto want = numbers(test.find("probs"));
    const auto left = tie ? sorted(*got) : *got;
    const auto right = tie ? sorted(want) : want;
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(left[i], right[i], tolerance) << i;
  }
  EXPECT_EQ(num_run, 245);
}

TEST(SamplerGolden, GreedyTakesTheReferenceToken) {
  int num_run = 0;
  for (const json::Value& test : *samplers().find("cases")->as_array()) {
    if (test.find("greedy") == nullptr) continue;
    SCOPED_TRACE(json::dump(test));
    ++num_run;
    Case c(test);
    auto sampler = Sampler::make(c.params, c.logits.size());
    ASSERT_TRUE(sampler);
    const auto got = sampler->sample(c.logits, c.history());
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(*got, *test.find("greedy")->as_int());
  }
  EXPECT_EQ(num_run, 20);
}

TEST(SamplerGolden, WhatTheReferenceRefusesIsRefused) {
  for (const json::Value& test : *samplers().find("refuse")->as_array()) {
    SCOPED_TRACE(json::dump(test));
    Case c(test);
    EXPECT_FALSE(filtered_probabilities(c.logits, c.params, {}));
    auto sampler = Sampler::make(c.params, c.logits.size());
    if (sampler) {
      EXPECT_FALSE(sampler->sample(c.logits, {}));
    } else {
      EXPECT_EQ(sampler.error().code, Code::kUsage);
    }
  }
}

// Draws with fixed logits.
std::vector<std::int32_t> draw(SamplingParams params, std::vector<float> logits, int count) {
  auto sampler = Sampler::make(std::move(params), logits.size());
  EXPECT_TRUE(sampler);
  std::vector<std::int32_t> out;
  for (int i = 0; i < count; ++i) {
    std::vector<float> work = logits;
    const auto id = sampler->sample(work, {});
    EXPECT_TRUE(id);
    out.push_back(id ? *id : -1);
  }
  return out;
}

// Chi-square of one degree of freedom and lag-1 correlation stay below what chance passes once in
// ten thousand: 15.1, and 3.9 standard deviations of 1 / sqrt(n).
TEST(Sampler, DrawsAnewAtEveryStep) {
  constexpr int kDraws = 10'000;
  for (const std::uint64_t seed : {0U, 1U, 2U, 12345U}) {
    const auto got = draw({.seed = seed}, {0, 0}, kDraws);
    const auto ones = static_cast<double>(std::count(got.begin(), got.end(), 1));
    const double off = ones - kDraws / 2.0;
    EXPECT_LT(off * off / (kDraws / 4.0), 15.1) << seed;
    double lag = 0;
    for (std::size_t i = 1; i < got.size(); ++i) lag += (2 * got[i] - 1) * (2 * got[i - 1] - 1);
    EXPECT_LT(std::abs(lag) / kDraws, 3.9 / std::sqrt(kDraws)) << seed;
  }
}

TEST(Sampler, TheSameSeedDrawsTheSameAndAnotherDoesNot) {
  const std::vector<float> logits(100, 0.0F);
  const auto first = draw({.seed = 7}, logits, 50);
  EXPECT_EQ(first, draw({.seed = 7}, logits, 50));
  EXPECT_NE(first, draw({.seed = 8}, logits, 50));
}

TEST(Sampler, NeverDrawsWhatTheFiltersTookAway) {
  for (const std::int32_t id : draw({.top_k = 2, .seed = 3}, {0, 1, 2, 3}, 500)) EXPECT_GE(id, 2);
  for (const std::int32_t id : draw({.top_p = 0.6F}, {0, 0, 5, 5}, 500)) EXPECT_GE(id, 2);
  for (const std::int32_t id : draw({.min_p = 0.5F}, {0, 0, 5, 5}, 500)) EXPECT_GE(id, 2);
}

TEST(Sampler, TemperatureZeroAndTopKOneTakeTheFirstOfTheLargest) {
  const std::vector<float> logits = {1, 3, 3, 2};
  for (const std::int32_t id : draw({.temperature = 0}, logits, 20)) EXPECT_EQ(id, 1);
  for (const std::int32_t id : draw({.top_k = 1}, logits, 20)) EXPECT_EQ(id, 1);
}

TEST(Sampler, TopPOverALargeVocabularyKeepsTheSmallestSufficientSet) {
  // 4096 equal tokens: 0.25 of the mass is exactly the 1024 lowest ids.
  const std::vector<float> logits(4096, 1.5F);
  const auto got = filtered_probabilities(logits, {.top_p = 0.25F}, {});
  ASSERT_TRUE(got);
  EXPECT_EQ(std::count_if(got->begin(), got->end(), [](float p) { return p > 0; }), 1024);
  EXPECT_GT((*got)[1023], 0);
  EXPECT_EQ((*got)[1024], 0);
}

TEST(Sampler, HistoryOutsideTheVocabularyIsPassedOver) {
  const std::vector<std::int32_t> strange = {-1, 4, 2'000'000'000};
  const std::vector<float> logits = {1, 2, 3, 4};
  const SamplingParams params = {.repetition_penalty = 2, .frequency_penalty = 1};
  const auto with = filtered_probabilities(logits, params, {strange, strange});
  const auto without = filtered_probabilities(logits, params, {});
  ASSERT_TRUE(with && without);
  EXPECT_EQ(*with, *without);
}

TEST(Sampler, HugeLogitsAtLowTemperatureStayNumbers) {
  const auto got = filtered_probabilities(std::vector<float>{3e37F, 0}, {.temperature = 0.01F}, {});
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, (std::vector<float>{1, 0}));
}

TEST(Sampler, RefusesLogitsOfAnotherLength) {
  auto sampler = Sampler::make({}, 4);
  ASSERT_TRUE(sampler);
  std::vector<float> logits(3);
  EXPECT_EQ(sampler->sample(logits, {}).error().code, Code::kUsage);
}

}  // namespace
}  // namespace lode::engine
