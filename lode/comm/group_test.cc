#include "lode/comm/group.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <numeric>

#include "lode/comm/error_record.h"
#include "lode/comm/exchange_rows.h"
#include "lode/comm/mpi_group.h"
#include "lode/comm/node_numbers.h"
#include "lode/comm/test_group_cases.h"
#include "lode/comm/thread_group.h"

namespace lode::comm {
namespace {

TEST(SingleGroup, DoesAllThatAGroupPromises) {
  const auto group = make_single_group();
  EXPECT_EQ(group->size(), 1u);
  EXPECT_EQ(group->num_nodes(), 1u);
  const Status status = cases::everything_holds(*group, 20);
  EXPECT_TRUE(status) << to_string(status.error());
}

TEST(SingleGroup, FailsForGoodWithItsDuplicates) {
  const auto group = make_single_group();
  auto twin = group->duplicate();
  ASSERT_TRUE(twin);
  group->fail({.code = Code::kNoSpace, .thing = "disk"});
  EXPECT_EQ((*twin)->barrier().error().code, Code::kNoSpace);
  EXPECT_FALSE(group->duplicate());
}

TEST(SingleGroup, RefusesMessagesToItself) {
  std::byte bytes[1];
  EXPECT_EQ(make_single_group()->send(0, 0, bytes).error().code, Code::kUsage);
}

TEST(Group, KeepsDeadlinesBelowAYear) {
  const auto group = make_single_group();
  group->set_deadline(std::chrono::milliseconds::max());
  EXPECT_EQ(group->deadline(), kMaxDeadline);
  group->set_deadline(std::chrono::milliseconds(-1));
  EXPECT_EQ(group->deadline().count(), 0);
}

TEST(ExchangeRows, RefusesCountsThatCannotBe) {
  std::vector<std::byte> rows(100);
  std::int32_t out[] = {-1}, in[] = {0};
  const auto negative = make_single_group();
  EXPECT_EQ(exchange_rows(*negative, {rows, out}, 10, {rows, in}).error().thing,
            "rows between ranks");
  out[0] = 11;
  const auto too_many = make_single_group();
  EXPECT_EQ(exchange_rows(*too_many, {rows, out}, 10, {rows, in}).error().code, Code::kOverBudget);
  const auto huge = make_single_group();
  out[0] = 2'000'000'000;
  EXPECT_EQ(exchange_rows(*huge, {rows, out}, ~std::size_t{0} / 2, {rows, in}).error().code,
            Code::kOverBudget);
  const auto few = make_single_group();
  EXPECT_FALSE(exchange_counts(*few, {}, in));
}

TEST(ExchangeRows, SaysOnAllRanksThatTheRoomOfOneIsTooSmall) {
  const Status status = run_ranks(3, {}, [](Group& group) -> Status {
    const std::vector<std::byte> out(30);
    const std::vector<std::int32_t> counts(3, 1);
    std::vector<std::byte> in(group.rank() == 2 ? 29 : 30);
    std::vector<std::int32_t> from(3);
    LODE_TRY_STATUS(exchange_counts_and_rows(group, {out, counts}, 10, {in, from}));
    return group.barrier();
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(to_string(status.error()),
            "rows between ranks: want 1 rows of 10 bytes after 20 bytes, found 29 bytes (rank 2)");
}

// sizes[from][to] in bytes; rank `to` must get, in rank order, what every rank sliced off for it.
RC_GTEST_PROP(ThreadGroup, MovesAnyMatrixOfSizes, ()) {
  const auto ranks = *rc::gen::inRange<std::size_t>(1, 5);
  const auto sizes = *rc::gen::container<std::vector<std::size_t>>(
      ranks * ranks,
      rc::gen::oneOf(rc::gen::just<std::size_t>(0), rc::gen::inRange<std::size_t>(0, 300)));
  const Status status = run_ranks(ranks, {}, [&](Group& group) -> Status {
    std::vector<std::size_t> out_bytes, in_bytes;
    std::vector<std::byte> out, want;
    for (std::size_t r = 0; r < ranks; ++r) {
      out_bytes.push_back(sizes[group.rank() * ranks + r]);
      in_bytes.push_back(sizes[r * ranks + group.rank()]);
      cases::append(out, cases::pattern(group.rank(), r, 3, out_bytes[r]));
      cases::append(want, cases::pattern(r, group.rank(), 3, in_bytes[r]));
    }
    std::vector<std::byte> in(want.size());
    LODE_TRY_STATUS(group.all_to_all_v(out, out_bytes, in, in_bytes));
    return cases::expect(in == want, "every rank gets its slices");
  });
  RC_ASSERT(status.has_value());
}

TEST(ErrorRecord, BringsAnErrorAcross) {
  const Error error{
      .code = Code::kPeerLost, .thing = "a", .wanted = "b", .found = "", .where = "d", .hint = "e"};
  const Error read = read_error_record(write_error_record(error));
  EXPECT_EQ(read.code, Code::kPeerLost);
  EXPECT_EQ(to_string(read), to_string(error));
}

TEST(ErrorRecord, CutsLongPartsBetweenCharacters) {
  std::string text = "x";
  for (int i = 0; i < 300; ++i) text += "\xC3\xA4";
  const Error read = read_error_record(write_error_record({.thing = text, .hint = "end"}));
  EXPECT_EQ(read.thing, text.substr(0, 399));
  EXPECT_EQ(read.hint, "end");
}

RC_GTEST_PROP(ErrorRecord, TakesAnyBytes, ()) {
  const auto bytes = *rc::gen::arbitrary<std::vector<std::uint8_t>>();
  const Error read = read_error_record(std::as_bytes(std::span(bytes)));
  RC_ASSERT(!to_string(read).empty() || !bytes.empty());
}

TEST(ErrorRecord, SaysThatItIsDamaged) {
  auto record = write_error_record({.thing = "a"});
  record[2] = std::byte{0xFF};  // a length of 65281
  EXPECT_EQ(read_error_record(record).found, "a damaged record of it");
  EXPECT_EQ(read_error_record({}).found, "a damaged record of it");
  record[0] = std::byte{200};  // no such code
  EXPECT_EQ(read_error_record(record).found, "a damaged record of it");
}

TEST(NodeNumbers, RiseWithTheLowestRankOfEachMachine) {
  const std::vector<int> lowest = {0, 1, 0, 1, 4};
  EXPECT_EQ(number_nodes(lowest), (std::vector<std::size_t>{0, 1, 0, 1, 2}));
}

TEST(Mpi, IsNotAskedForByAPlainRun) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    unsetenv(name);
    EXPECT_FALSE(mpi_requested());
    setenv(name, "2", 1);
    EXPECT_TRUE(mpi_requested()) << name;
    unsetenv(name);
  }
}

// Where it is built in, tests/mpi runs it.
TEST(Mpi, IsBuiltInOrRefusedByName) {
  if (mpi_built_in()) return;
  int said = 0;
  const Status status = run_mpi(
      {}, [](Group&) { return Status(); }, [&](const Error&) { ++said; });
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_EQ(said, 1);
}

}  // namespace
}  // namespace lode::comm
