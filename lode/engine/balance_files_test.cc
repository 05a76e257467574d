#include "lode/engine/balance_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lode::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

TEST(BalanceFiles, ReadLoadsAndWriteThemAgain) {
  const auto value =
      parsed(R"({"layers": 2, "experts": 3, "steps": 4, "loads": [[1, 2, 3], [0.5, 0, 7]]})");
  const auto loads = read_balance_loads(value);
  ASSERT_TRUE(loads) << to_string(loads.error());
  EXPECT_EQ(loads->steps, 4);
  EXPECT_THAT(loads->loads, ElementsAre(1, 2, 3, 0.5, 0, 7));
  const auto again = read_balance_loads(as_json(*loads));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->loads, loads->loads);
  EXPECT_EQ(again->steps, loads->steps);
}

TEST(BalanceFiles, SumTrafficOverItsSteps) {
  const auto loads = read_balance_loads(
      parsed(R"({"layers": 1, "experts": 2, "traffic": [[[1, 2]], [[10, 0]], [[0, 5]]]})"));
  ASSERT_TRUE(loads) << to_string(loads.error());
  EXPECT_EQ(loads->traffic.size(), 3u);
  EXPECT_EQ(loads->steps, 3);
  EXPECT_THAT(loads->loads, ElementsAre(11, 7));
}

TEST(BalanceFiles, RefuseLoadsByTheNameOfWhatIsWrong) {
  const struct {
    const char* text;
    const char* message;
  } bad[] = {
      {"[]", "loads: want an object, found array"},
      {R"({"experts": 2, "loads": [[1, 2]]})", "\"layers\": want a whole number, found nothing"},
      {R"({"layers": 0, "experts": 2, "loads": []})", "\"layers\": want 1.."},
      {R"({"layers": 1, "experts": "two", "loads": [[1, 2]]})", "\"experts\": want a whole number"},
      {R"({"layers": 1, "experts": 2})", "\"loads\": want a list, found nothing"},
      {R"({"layers": 2, "experts": 2, "loads": [[1, 2]]})", "\"loads\": want 2 entries, found 1"},
      {R"({"layers": 1, "experts": 2, "loads": [[1]]})", "\"loads\"[0]: want 2 entries, found 1"},
      {R"({"layers": 1, "experts": 2, "loads": [[1, -1]]})", "load of expert 1 in layer 0"},
      {R"({"layers": 1, "experts": 2, "loads": [[1, 1e39]]})", "load of expert 1 in layer 0"},
      {R"({"layers": 1, "experts": 2, "loads": [[1, null]]})", "load of expert 1 in layer 0"},
      {R"({"layers": 1, "experts": 1, "steps": 0, "loads": [[1]]})", "\"steps\": want a number"},
      {R"({"layers": 1, "experts": 1, "steps": "x", "loads": [[1]]})", "\"steps\": want a number"},
      {R"({"layers": 1, "experts": 1, "traffic": []})", "\"traffic\": want one step"},
      {R"({"layers": 1, "experts": 1, "traffic": [[[1]], [[1], [2]]]})", "\"traffic\"[1]: want 1"},
      {R"({"layers": 4194304, "experts": 4194304, "loads": []})", "at most 4194304 numbers"},
  };
  for (const auto& one : bad) {
    const auto loads = read_balance_loads(parsed(one.text));
    ASSERT_FALSE(loads) << one.text;
    EXPECT_EQ(loads.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(loads.error()), HasSubstr(one.message));
  }
}

TEST(BalanceFiles, ReadMapsAndWriteThemAgain) {
  const auto maps = read_balance_maps(
      parsed(R"({"slots": 4, "ranks": 2, "physical_to_logical": [[0, 1, 2, -1], [2, 1, 0, 0]]})"));
  ASSERT_TRUE(maps) << to_string(maps.error());
  ASSERT_EQ(maps->size(), 2u);
  EXPECT_EQ(maps->front().experts(), 3u);
  EXPECT_THAT(maps->back().slots_of(0), ElementsAre(2, 3));
  const auto again = read_balance_maps(as_json(*maps));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *maps);
}

TEST(BalanceFiles, RefuseMapsByTheNameOfWhatIsWrong) {
  const struct {
    const char* text;
    const char* message;
  } bad[] = {
      {"7", "maps: want an object"},
      {R"({"ranks": 1, "physical_to_logical": [[0]]})", "\"slots\": want a whole number"},
      {R"({"slots": 1, "ranks": 1})", "\"physical_to_logical\": want a list"},
      {R"({"slots": 1, "ranks": 1, "physical_to_logical": []})", "one layer or more"},
      {R"({"slots": 2, "ranks": 1, "physical_to_logical": [[0]]})", "want 2 entries, found 1"},
      {R"({"slots": 1, "ranks": 1, "physical_to_logical": [["a"]]})", "slot 0 of layer 0"},
      {R"({"slots": 1, "ranks": 1, "physical_to_logical": [[99999999999]]})", "slot 0 of layer 0"},
      {R"({"slots": 2, "ranks": 1, "physical_to_logical": [[0, 1], [1, 1]]})",
       "expert 0 of an expert map: want a slot that holds it, found none (layer 1"},
      {R"({"slots": 2, "ranks": 1, "experts": 3, "physical_to_logical": [[0, 1]]})", "expert 2"},
      {R"({"slots": 3, "ranks": 2, "physical_to_logical": [[0, 1, 2]]})", "a multiple of 2 ranks"},
      {R"({"layers": 2, "slots": 1, "ranks": 1, "physical_to_logical": [[0]]})", "want 2 entries"},
  };
  for (const auto& one : bad) {
    const auto maps = read_balance_maps(parsed(one.text));
    ASSERT_FALSE(maps) << one.text;
    EXPECT_EQ(maps.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(maps.error()), HasSubstr(one.message));
  }
}

}  // namespace
}  // namespace lode::engine
