#include "lode/comm/failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lode::comm {
namespace {

using testing::HasSubstr;

// Rank 1 has ended, rank 0 is in a barrier: it is one fault, whoever finds it.
TEST(OperationsThatDiffer, TellOfTheRankThatHasLeftFromBothSides) {
  const Error by_the_other =
      operations_differ(0, {.operation = Operation::kBarrier}, 1, Operation::kEnd, 0);
  const Error by_itself =
      operations_differ(1, {.operation = Operation::kEnd}, 0, Operation::kBarrier, 0);
  EXPECT_EQ(by_the_other.code, Code::kPeerLost);
  EXPECT_EQ(by_itself.code, Code::kPeerLost);
  EXPECT_THAT(to_string(by_itself),
              HasSubstr("barrier between ranks: want rank 1, found it has left"));
  EXPECT_EQ(to_string(by_itself), to_string(by_the_other));
}

TEST(OperationsThatDiffer, NameBothWhereNobodyHasLeft) {
  const Error error = operations_differ(0, {.operation = Operation::kBroadcast, .root = 2}, 1,
                                        Operation::kAllGather, 0);
  EXPECT_EQ(error.code, Code::kOther);
  EXPECT_THAT(to_string(error), HasSubstr("want broadcast of rank 2, found rank 1 in all_gather"));
}

}  // namespace
}  // namespace lode::comm
