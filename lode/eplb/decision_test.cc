#include "lode/eplb/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lode::eplb {
namespace {

using placement::Costs;
using placement::ExpertMap;
using testing::ElementsAre;

// moe_runner_eplb, worked example A: loads 105.5 and 95.5 against 121 and 80, one record sent.
class WorkedExample : public testing::Test {
 protected:
  ExpertMap now_ = *ExpertMap::make({0, 1, 2, 3, 0, 1}, 4, 2);
  ExpertMap next_ = *ExpertMap::make({0, 1, 2, 3, 0, 2}, 4, 2);
  std::vector<float> rows_ = {90, 30, 61, 20};
  // A row a second, a record in 4 seconds.
  Costs costs_{.seconds_per_row = 1, .bytes_per_second = 25, .expert_bytes = 100};

  LayerDecision decided(double steps, double threshold) const {
    return *decide({7, &now_, &next_, rows_}, costs_, {steps, threshold});
  }
};

TEST_F(WorkedExample, IsAcceptedWhereItSavesMoreThanItTakes) {
  const LayerDecision made = decided(1, 1);
  EXPECT_EQ(made.layer, 7U);
  EXPECT_THAT(made.rows_before, ElementsAre(121, 80));
  EXPECT_THAT(made.rows_after, ElementsAre(105.5, 95.5));
  EXPECT_EQ(made.verdict.saved_seconds, 15.5);
  EXPECT_EQ(made.verdict.transfer_seconds, 4);
  EXPECT_TRUE(made.verdict.accepted);
  EXPECT_EQ(made.moved_records, 1U);
  EXPECT_EQ(made.moved_bytes, 100U);
}

TEST_F(WorkedExample, IsRefusedWhereTheIntervalIsTooShortOrTheThresholdTooHigh) {
  for (const LayerDecision& made : {decided(0.25, 1), decided(1, 4)}) {
    EXPECT_FALSE(made.verdict.accepted);
    EXPECT_EQ(made.moved_records, 0U);
    EXPECT_EQ(made.moved_bytes, 0U);
  }
}

TEST_F(WorkedExample, IsAnErrorBetweenMapsOfOtherSizes) {
  next_ = *ExpertMap::make({0, 1, 2, 3}, 4, 2);
  const auto made = decide({0, &now_, &next_, rows_}, costs_, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUsage);
}

LayerDecision layer_of(std::size_t layer, double saved, double takes) {
  LayerDecision made;
  made.layer = layer;
  made.verdict = {saved > takes, saved, takes};
  made.rows_before = {100, 0, 0, 0};
  made.rows_after = {25, 25, 25, 25};
  made.moved_records = made.verdict.accepted ? 2 : 0;
  made.moved_bytes = made.verdict.accepted ? 60 : 0;
  return made;
}

// 5.11: two layers, each (100, 0, 0, 0), are 50/200; with one of them even, 50/125.
TEST(Decision, SumsLayersAndRanks) {
  const Decision decision = summed({layer_of(0, 1, 2), layer_of(1, 3, 2)});
  EXPECT_EQ(decision.balancedness_before, 0.25);
  EXPECT_EQ(decision.balancedness_after, 0.4);
  EXPECT_EQ(decision.accepted_layers, 1U);
  EXPECT_EQ(decision.moved_records, 2U);
  EXPECT_EQ(decision.moved_bytes, 60U);
}

TEST(Decision, TakesFirstWhatGainsMostAndOfEqualsTheLowerLayer) {
  const Decision decision = summed({layer_of(0, 1, 2), layer_of(1, 3, 2), layer_of(2, 9, 1),
                                    layer_of(3, 3, 2), layer_of(4, 8, 7)});
  EXPECT_THAT(in_order_of_gain(decision), ElementsAre(2, 1, 3, 4));
}

TEST(Decision, OfNothingIsNothing) {
  const Decision decision = summed({});
  EXPECT_EQ(decision.balancedness_before, 0);
  EXPECT_TRUE(in_order_of_gain(decision).empty());
}

}  // namespace
}  // namespace lode::eplb
