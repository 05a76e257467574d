#include "lode/placement/expert_times.h"

#include <gtest/gtest.h>

#include <limits>

namespace lode::placement {
namespace {

// Times that a machine with these costs would take.
double seconds_of(const ExpertSeconds& costs, double rows, double experts) {
  return costs.a_row * rows + costs.an_expert * experts;
}

TEST(ExpertTimes, TellRowsAndExpertsApart) {
  const ExpertSeconds machine{3e-6, 2e-4};
  ExpertTimes times;
  for (const auto& [rows, experts] : {std::pair{1., 1.}, {8., 7.}, {512., 64.}, {2048., 64.}})
    times.add(rows, experts, seconds_of(machine, rows, experts));
  const ExpertSeconds fit = times.fit();
  EXPECT_EQ(times.samples(), 4U);
  EXPECT_NEAR(fit.a_row, machine.a_row, 1e-9 * machine.a_row);
  EXPECT_NEAR(fit.an_expert, machine.an_expert, 1e-9 * machine.an_expert);
}

TEST(ExpertTimes, AreSummedOverLayers) {
  const ExpertSeconds machine{1e-6, 5e-5};
  ExpertTimes first, second;
  first.add(4, 4, seconds_of(machine, 4, 4));
  second.add(400, 8, seconds_of(machine, 400, 8));
  first += second;
  EXPECT_EQ(first.samples(), 2U);
  EXPECT_NEAR(first.fit().an_expert, machine.an_expert, 1e-9 * machine.an_expert);
}

TEST(ExpertTimes, GiveRowsAllTheCostWhereExpertsAreAlwaysAsMany) {
  ExpertTimes times;
  times.add(4, 4, 4e-4);
  times.add(7, 7, 7e-4);
  EXPECT_NEAR(times.fit().a_row, 1e-4, 1e-12);
  EXPECT_EQ(times.fit().an_expert, 0);
}

TEST(ExpertTimes, NeverGiveACostBelowNothing) {
  ExpertTimes rows_only, experts_only;
  for (const double rows : {10., 100., 1000.}) {
    rows_only.add(rows, 10, rows > 50 ? rows * 1e-6 : rows * 5e-7);
    experts_only.add(rows, 10, rows > 500 ? 9e-4 : 1e-3);
  }
  EXPECT_EQ(rows_only.fit().an_expert, 0);
  EXPECT_GT(rows_only.fit().a_row, 0);
  EXPECT_EQ(experts_only.fit().a_row, 0);
  EXPECT_GT(experts_only.fit().an_expert, 0);
}

TEST(ExpertTimes, NoteNothingWhereNothingWasMeasured) {
  ExpertTimes times;
  times.add(0, 0, 1e-6);
  times.add(3, 2, 0);
  times.add(3, 2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(times.samples(), 0U);
  EXPECT_EQ(times.fit().a_row, 0);
}

}  // namespace
}  // namespace lode::placement
