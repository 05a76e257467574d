#include "lode/eplb/record_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/comm/thread_group.h"
#include "lode/eplb/test_faulty_group.h"

namespace lode::eplb {
namespace {

// A partner may still come to a message while later ones of the same pair are there: it must meet
// the one that is its own.
TEST(RecordTransfers, AreGivenUpLastOneFirst) {
  std::vector<std::size_t> given_up;
  test::Faults faults;
  faults.given_up = &given_up;
  const auto groups = *comm::make_thread_group(2);
  test::FaultyGroup group(*groups[0], faults);
  std::vector<std::byte> bank(20), buffer(20);
  const std::vector<RecordMove> moves = {{3, 1, 0, 0}, {4, 1, 1, 0}};
  RecordTransfers transfers;
  ASSERT_TRUE(transfers.start(group, moves, {bank, buffer, 10, 1, true}));
  EXPECT_THAT(transfers.received(), testing::ElementsAre(3, 4));
  const auto complete = transfers.complete();
  ASSERT_TRUE(complete);
  EXPECT_FALSE(*complete);
  transfers.drop();
  EXPECT_THAT(given_up, testing::ElementsAre(3, 2, 1, 0));
}

}  // namespace
}  // namespace lode::eplb
