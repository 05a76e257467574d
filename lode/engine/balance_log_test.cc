#include "lode/engine/balance_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/engine/balance_files.h"

namespace lode::engine {
namespace {

using ::testing::HasSubstr;

// Two ranks and three layers, the first of which has no experts.
BalanceLog log_of_tests() {
  BalanceLog log;
  log.layers = 3;
  log.ranks = 2;
  log.rows_of_a_pass = {0, 0, 4, 0, 1, 1};
  log.passes = 10;
  log.looks = 1;
  log.last_looks = {{.pass = 4, .balancedness_counted = 0.5, .moved_bytes = 70}};
  log.rank_figures = {{.passes_ns = 5'000'000, .received_bytes = 30},
                      {.passes_ns = 6'000'000, .received_bytes = 40}};
  log.rank_figures[0].times.add(10, 1, 2e-5);                       // the other has had no rows
  log.layer_figures = {{}, {30, 1'000'000, 9}, {10, 2'000'000, 9},  //
                       {}, {10, 500'000, 9},   {10, 500'000, 9}};
  return log;
}

TEST(BalanceLog, TellsTheBalanceOfEachLayerByTheRowsThatRanksComputed) {
  EXPECT_THAT(log_of_tests().layer_balancedness(), testing::ElementsAre(0, 20.0 / 30, 1));
}

TEST(BalanceLog, TakesForALayerWhatTheRankThatComputesMostDoesBeside) {
  const placement::Costs costs = log_of_tests().costs();
  EXPECT_DOUBLE_EQ(costs.seconds_per_row, 2e-6);
  EXPECT_DOUBLE_EQ(costs.seconds_per_layer, (5e-3 - 3e-3) / (10 * 2));
}

TEST(BalanceLog, IsWrittenByLookLayerAndRank) {
  const json::Value value = as_json(log_of_tests());
  EXPECT_EQ(*value.find("received_bytes")->as_int(), 70);
  EXPECT_EQ(value.find("by_layer")->as_array()->size(), 2U) << "those with experts";
  EXPECT_EQ(*value.find("by_layer")->as_array()->at(0).find("layer")->as_int(), 1);
  EXPECT_EQ(value.find("by_rank")->as_array()->size(), 2U);
  EXPECT_EQ(*value.find("last_looks")->as_array()->at(0).find("moved_bytes")->as_int(), 70);
  EXPECT_TRUE(value.find("last_failure")->is_null());
}

TEST(BalanceLog, IsAFileOfLoadsForPlanning) {
  const auto loads = read_balance_loads(as_json(log_of_tests()));
  ASSERT_TRUE(loads) << to_string(loads.error());
  EXPECT_EQ(loads->layers, 3U);
  EXPECT_EQ(loads->experts, 2U);
  EXPECT_EQ(loads->steps, 1);
  EXPECT_EQ(loads->loads, log_of_tests().rows_of_a_pass);
}

TEST(BalanceLog, NamesTheLastFailure) {
  BalanceLog log = log_of_tests();
  EXPECT_EQ(as_text(log).find("failed"), std::string::npos);
  log.failures = 2;
  log.last_failure = "a record was spoilt";
  EXPECT_THAT(as_text(log), HasSubstr("2 migrations failed"));
  EXPECT_THAT(as_text(log), HasSubstr("a record was spoilt"));
}

}  // namespace
}  // namespace lode::engine
