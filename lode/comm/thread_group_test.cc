#include "lode/comm/thread_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "lode/comm/test_group_cases.h"

namespace lode::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr GroupOptions kShort{.deadline = milliseconds(200)};

Status run(std::size_t ranks, const GroupOptions& options,
           const std::function<Status(Group&)>& body) {
  return run_ranks(ranks, options, [&](Group& group) { return body(group); });
}

// What each rank's body came to, where run_ranks gives one for all.
std::vector<Status> outcomes_of(std::size_t ranks, const GroupOptions& options,
                                const std::function<Status(Group&)>& body) {
  std::vector<Status> outcomes(ranks);
  const Status all = run_ranks(ranks, options, [&](Group& group) {
    outcomes[group.rank()] = body(group);
    return outcomes[group.rank()];
  });
  (void)all;
  return outcomes;
}

void expect_one_error(const std::vector<Status>& outcomes, Code code, const std::string& part) {
  for (const Status& outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, code);
    EXPECT_EQ(to_string(outcome.error()), to_string(outcomes[0].error()));
    EXPECT_THAT(to_string(outcome.error()), HasSubstr(part));
  }
}

class GroupOf : public testing::TestWithParam<std::size_t> {};

TEST_P(GroupOf, ThreadsDoesAllThatAGroupPromises) {
  const Status status =
      run_ranks(GetParam(), {}, [](Group& group) { return cases::everything_holds(group, 20); });
  EXPECT_TRUE(status) << to_string(status.error());
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupOf, testing::Values(1, 2, 3, 4, 8));

TEST(ThreadGroup, NeedsRanksButNotAnyNumber) {
  for (const std::size_t ranks : {std::size_t{0}, kMaxThreadRanks + 1}) {
    const auto group = make_thread_group(ranks);
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, Code::kUsage);
  }
}

TEST(ThreadGroup, CountsItsNodes) {
  const auto group = make_thread_group(5, {.ranks_per_node = 2});
  ASSERT_TRUE(group);
  EXPECT_EQ((*group)[0]->num_nodes(), 3u);
  EXPECT_EQ((*group)[0]->node_of(3), 1u);
  EXPECT_EQ((*group)[0]->node_of(4), 2u);
}

TEST(ThreadGroup, SaysOnAllRanksThatSizesDiffer) {
  const auto outcomes = outcomes_of(3, {}, cases::another_size);
  expect_one_error(outcomes, Code::kOther, "all_gather between ranks: want");
}

TEST(ThreadGroup, SaysOnAllRanksThatOperationsDiffer) {
  expect_one_error(outcomes_of(3, {}, cases::another_operation), Code::kOther,
                   "ranks that should do the same");
}

TEST(ThreadGroup, SaysOnAllRanksThatRootsDiffer) {
  expect_one_error(outcomes_of(3, {}, cases::another_root), Code::kOther, "broadcast of rank 1");
}

TEST(ThreadGroup, SaysOnAllRanksThatASpanDoesNotFit) {
  expect_one_error(outcomes_of(3, {}, cases::spans_that_do_not_fit), Code::kOther,
                   "want 3 ranks x 1 bytes, found room for 4 bytes (rank 1)");
}

TEST(ThreadGroup, SaysOnAllRanksThatAMessageHasAnotherSize) {
  expect_one_error(outcomes_of(3, {}, cases::message_of_another_size), Code::kOther,
                   "message 5 from rank 0 to rank 1: want 8 bytes from rank 0, found 7 bytes");
}

TEST(ThreadGroup, EndsAllRanksWithTheErrorOfTheOneThatRefuses) {
  const Status status = run(4, {}, cases::one_refuses);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kOverBudget);
  EXPECT_EQ(to_string(status.error()), "ring of reads (rank 1, layer 3)");
}

TEST(ThreadGroup, DoesNotWaitForARankThatHasLeft) {
  const auto began = Clock::now();
  const Status status = run(3, {}, cases::one_leaves);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(20));  // the deadline is 60
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kPeerLost);
  EXPECT_THAT(to_string(status.error()),
              HasSubstr("barrier between ranks: want rank 1, found it has left"));
}

TEST(ThreadGroup, NamesTheRanksThatDoNotComeWithinTheDeadline) {
  const auto outcomes = outcomes_of(4, kShort, [](Group& group) -> Status {
    if (group.rank() % 2 == 0) return group.barrier();
    while (group.health()) std::this_thread::sleep_for(milliseconds(1));
    return group.health();
  });
  expect_one_error(outcomes, Code::kPeerLost, "want rank 1, 3, found nothing within 200 ms");
}

TEST(ThreadGroup, EndsAMessageThatNobodyReceives) {
  expect_one_error(outcomes_of(2, kShort, cases::nobody_receives), Code::kPeerLost,
                   "nothing within 200 ms");
}

TEST(ThreadGroup, EndsAMessageWhosePartnerLeaves) {
  const auto began = Clock::now();
  const Status status = run_ranks(2, {}, [](Group& group) -> Status {
    if (group.rank() == 1) return {};
    std::byte bytes[4];
    LODE_TRY(Transfer received, group.receive(1, 0, bytes));
    return received.wait();
  });
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(20));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kPeerLost);
}

TEST(ThreadGroup, FailsOnceAndForAllWithItsDuplicates) {
  const Status status = run_ranks(2, {}, [](Group& group) -> Status {
    LODE_TRY(const auto twin, group.duplicate());
    if (group.rank() == 1) twin->fail({.thing = "first"});
    const Status seen = group.barrier();
    group.fail({.thing = "second"});
    std::byte bytes[4];
    EXPECT_EQ(to_string(seen.error()), "first (rank 1)");
    EXPECT_EQ(to_string(twin->barrier().error()), "first (rank 1)");
    EXPECT_EQ(to_string(group.send(1 - group.rank(), 0, bytes).error()), "first (rank 1)");
    EXPECT_EQ(to_string(group.agree({}).error()), "first (rank 1)");
    return group.health();
  });
  EXPECT_EQ(to_string(status.error()), "first (rank 1)");
}

TEST(ThreadGroup, RefusesMessagesToItselfStrangersAndTagsThatMpiCannotCarry) {
  const Status status = run_ranks(2, {}, [](Group& group) -> Status {
    std::byte bytes[4];
    const std::size_t other = 1 - group.rank();
    EXPECT_EQ(group.send(group.rank(), 0, bytes).error().code, Code::kUsage);
    EXPECT_EQ(group.receive(2, 0, bytes).error().code, Code::kUsage);
    EXPECT_EQ(group.send(other, kMaxTag + 1, bytes).error().code, Code::kUsage);
    return group.barrier();  // and lives on
  });
  EXPECT_TRUE(status);
}

TEST(ThreadGroup, TakesBackMessagesThatAreGivenUp) {
  const Status status = run_ranks(2, {}, [](Group& group) -> Status {
    const std::size_t other = 1 - group.rank();
    {
      const std::vector<std::byte> gone(1000);
      LODE_TRY(Transfer sent, group.send(other, 3, gone));
      LODE_TRY(const bool complete, sent.test());
      EXPECT_FALSE(complete);
    }
    LODE_TRY_STATUS(group.barrier());
    std::vector<std::byte> got(8), out(8, std::byte{5});
    LODE_TRY(Transfer received, group.receive(other, 3, got));
    LODE_TRY(Transfer sent, group.send(other, 3, out));
    LODE_TRY_STATUS(received.wait());
    LODE_TRY_STATUS(sent.wait());
    return cases::expect(got == out, "the second message is the one that arrives");
  });
  EXPECT_TRUE(status) << to_string(status.error());
}

// Ranks fail while others read their spans; sanitizers see who touches what was freed.
TEST(ThreadGroup, CanFailAtAnyMoment) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Status status = run_ranks(4, {}, [&](Group& group) -> Status {
      for (std::size_t turn = 0;; ++turn) {
        if (group.rank() == seed % 4 && turn == seed % 9) {
          group.fail({.thing = "enough"});
          return group.health();
        }
        LODE_TRY_STATUS(cases::exchanges_rows(group, seed + turn));
      }
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().thing, "enough");
  }
}

}  // namespace
}  // namespace lode::comm
