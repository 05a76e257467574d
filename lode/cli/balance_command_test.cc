#include <gmock/gmock.h>

#include "lode/cli/test_command.h"

// `lode balance` as a user types it. What it computes is tested in engine/ and placement/.

namespace lode::cli {
namespace {

using ::testing::HasSubstr;

const std::string kLoads = R"({"layers": 1, "experts": 4, "loads": [[90, 30, 61, 20]]})";

TEST(BalanceCommand, PlansAndWritesMapsThatItReadsAgain) {
  const std::string loads = write_temp("loads.json", kLoads);
  const std::string maps = temp("maps.json");
  const Answer first = lode({"balance", "plan", loads, "--ranks", "2", "--redundant-experts", "2",
                             "--out", maps, "--expert-bytes", "1000"});
  ASSERT_EQ(first.status, 0) << first.err;
  // The worked example A of the policy: 0.8306 before, 0.9526 after, one expert moves.
  EXPECT_THAT(first.out, HasSubstr("balancedness 0.8306 before, 0.9526 after"));
  EXPECT_THAT(first.out, HasSubstr("1 expert sent between ranks (1000 B)"));
  const json::Value written = json_of(text_of(maps));
  EXPECT_EQ(whole(written, "slots"), 6);
  EXPECT_EQ(whole(written, "ranks"), 2);
  const Answer again =
      lode({"balance", "plan", loads, "--ranks", "2", "--slots", "6", "--current", maps, "--json"});
  ASSERT_EQ(again.status, 0) << again.err;
  const json::Value report = json_of(again.out);
  EXPECT_EQ(whole(*report.find("change"), "changed_slots"), 0);
  const json::Value& layer = report.find("after")->find("layers")->as_array()->at(0);
  EXPECT_EQ(layer.find("rank_rows")->as_array()->size(), 2u);
}

TEST(BalanceCommand, SimulatesEveryKindOfTraffic) {
  for (const char* const kind : {"zipf", "log-normal", "shifting"}) {
    const Answer answer =
        lode({"balance", "simulate", "--traffic", kind, "--layers", "2", "--experts", "16",
              "--ranks", "4", "--redundant-experts", "4", "--steps", "60", "--json"});
    ASSERT_EQ(answer.status, 0) << answer.err;
    const json::Value report = json_of(answer.out);
    EXPECT_EQ(whole(report, "steps"), 60);
    EXPECT_GT(report.find("after")->find("balancedness")->number(),
              report.find("before")->find("balancedness")->number());
  }
  const Answer text = lode({"balance", "simulate", write_temp("traffic.json", kLoads), "--ranks",
                            "2", "--interval", "1"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("1 step of 1 layer"));
}

TEST(BalanceCommand, DrawsEveryRankOfEveryLayerForBothThemes) {
  const std::string path = temp("balance.svg");
  const Answer answer =
      lode({"balance", "plan", write_temp("loads.json", kLoads), "--ranks", "2", "--svg", path});
  ASSERT_EQ(answer.status, 0) << answer.err;
  const std::string svg = text_of(path);
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  for (const char* const cell : {"layer 0, rank 0: ", "layer 0, rank 1: "})
    EXPECT_NE(svg.find(cell), svg.rfind(cell)) << "once before and once after";
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

TEST(BalanceCommand, RefusesWhatCannotBeMeant) {
  const std::string loads = write_temp("loads.json", kLoads);
  const struct {
    std::vector<std::string> words;
    int status;
    const char* message;
  } bad[] = {
      {{"plan", loads, "--ranks", "3"}, 2, "the nearest is 6"},
      {{"plan", loads, "--ranks", "2", "--slots", "6", "--redundant-experts", "2"},
       2,
       "one of them"},
      {{"plan", loads, "--ranks", "2", "--policy", "luck"}, 2, "identity, deepseek or best"},
      {{"plan", loads, "--ranks", "2", "--expert-bytes", "many"}, 2, "--expert-bytes"},
      {{"plan", loads, "--ranks", "2", "--bandwidth", "0"}, 2, "speed of sending"},
      {{"plan", loads, "--ranks", "2", "--row-us", "-1"}, 2, "time of a row"},
      {{"plan", loads, "--ranks", "2", "--redundant-experts", "18446744073709551615"},
       2,
       "--redundant-experts"},
      {{"plan", loads, "--ranks", "2", "--current", loads}, 4, "\"slots\""},
      {{"plan", write_temp("bad.json", "{"), "--ranks", "2"}, 4, "bad.json"},
      {{"plan", temp("none.json"), "--ranks", "2"}, 6, "none.json"},
      {{"simulate", "--ranks", "2"}, 2, "a file of loads or --traffic, found neither"},
      {{"simulate", loads, "--traffic", "zipf", "--ranks", "2"}, 2, "found both"},
      {{"simulate", "--traffic", "even", "--ranks", "2"}, 2, "zipf, log-normal or shifting"},
      {{"simulate", "--traffic", "zipf", "--ranks", "2", "--interval", "0"}, 2, "interval"},
      {{"simulate", "--traffic", "zipf", "--ranks", "2", "--half-life", "nan"}, 2, "half-life"},
  };
  for (const auto& one : bad) {
    std::vector<std::string> words{"balance"};
    words.insert(words.end(), one.words.begin(), one.words.end());
    const Answer answer = lode(words);
    EXPECT_EQ(answer.status, one.status) << one.message;
    EXPECT_THAT(answer.err, HasSubstr(one.message));
  }
}

}  // namespace
}  // namespace lode::cli
