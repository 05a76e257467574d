#include "lode/placement/transfer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "lode/placement/expert_map.h"
#include "lode/placement/moves.h"
#include "lode/placement/test_golden.h"
#include "lode/placement/test_random_maps.h"

namespace lode::placement {
namespace {

using testing::HasSubstr;
using Maps = std::vector<std::int32_t>;
using Rows = std::vector<std::vector<std::int32_t>>;

Rows rows_of(const std::vector<LocalCopy>& copies) {
  Rows rows;
  for (const LocalCopy& copy : copies) rows.push_back({copy.from_slot, copy.to_slot});
  return rows;
}
Rows rows_of(const std::vector<Send>& sends) {
  Rows rows;
  for (const Send& send : sends) rows.push_back({send.expert, send.from_slot, send.to_rank});
  return rows;
}
Rows rows_of(const std::vector<Receive>& receives) {
  Rows rows;
  for (const Receive& one : receives) rows.push_back({one.expert, one.from_rank, one.to_slot});
  return rows;
}

TEST(TransferPlan, IsThatOfTheGoldenCasesForEveryRank) {
  for (const json::Value& one : golden::cases("transfer_plan")) {
    const auto from = golden::numbers<std::int32_t>(one, "old");
    const auto to = golden::numbers<std::int32_t>(one, "new");
    const auto plan = plan_transfer(from, to, golden::size(one, "num_ranks"));
    ASSERT_TRUE(plan) << to_string(plan.error());
    for (const json::Value& want : *one.find("plan")->as_array()) {
      const RankTransfer& rank = plan->at(golden::size(want, "rank"));
      EXPECT_EQ(rank.unchanged, golden::numbers<std::int32_t>(want, "unchanged"));
      EXPECT_EQ(rows_of(rank.local_copies), golden::rows<std::int32_t>(want, "local_copies"));
      EXPECT_EQ(rows_of(rank.sends), golden::rows<std::int32_t>(want, "send"));
      EXPECT_EQ(rows_of(rank.receives), golden::rows<std::int32_t>(want, "recv"));
      EXPECT_EQ(rows_of(rank.duplicates), golden::rows<std::int32_t>(want, "duplicates"));
    }
  }
}

TEST(TransferPlan, RefusesMapsThatDoNotFitByName) {
  const struct {
    Maps from, to;
    std::size_t ranks;
    const char* message;
  } bad[] = {
      {{0, 1}, {0, 1, 2}, 1, "slots of the new map: want 2, found 3"},
      {{0, 1, 2}, {0, 1, 2}, 2, "a multiple of the 2 ranks, found 3"},
      {{0, 1}, {0, 1}, 0, "a multiple of the 0 ranks"},
      {{0, 1}, {0, 2}, 2, "expert 2 of the new map: want a slot of the old map"},
      {{0, -2}, {0, 0}, 2, "expert of a slot: want -1.."},
      {{0, 0}, {0, 2000000000}, 2, "found 2000000000"},
  };
  for (const auto& one : bad) {
    const auto plan = plan_transfer(one.from, one.to, one.ranks);
    ASSERT_FALSE(plan) << one.message;
    EXPECT_EQ(plan.error().code, Code::kUsage);
    EXPECT_THAT(to_string(plan.error()), HasSubstr(one.message));
  }
}

// Records are the bytes that move: here each says which expert it is and of which old slot.
struct Ranks {
  explicit Ranks(const Maps& from, std::size_t ranks)
      : width(from.size() / ranks), slots(from.begin(), from.end()), buffers(ranks) {}
  std::int32_t& at(Move::Place place, std::size_t rank, std::size_t entry) {
    return place == Move::Place::kSlot ? slots[rank * width + entry] : buffers[rank][entry];
  }
  std::size_t width;
  std::vector<std::int32_t> slots;
  std::vector<std::map<std::size_t, std::int32_t>> buffers;
};

// Runs moves on records and gives how many went between ranks.
std::size_t run(const std::vector<Move>& moves, Ranks& ranks) {
  std::size_t sent = 0;
  for (const Move& move : moves) {
    const std::int32_t record = ranks.at(move.from_place, move.from_rank, move.from);
    RC_ASSERT(record == move.expert);
    ranks.at(move.to_place, move.to_rank, move.to) = record;
    sent += move.from_rank != move.to_rank;
  }
  return sent;
}

void check_slots(const Ranks& ranks, const Maps& to) {
  for (std::size_t slot = 0; slot < to.size(); ++slot)
    if (to[slot] != kNoExpert) RC_ASSERT(ranks.slots[slot] == to[slot]);
}

struct Pair {
  Maps from, to;
  std::size_t ranks;
  std::vector<RankTransfer> plan;
};
Pair random_pair() {
  const RandomShape sizes = random_shape();
  const std::size_t slots = sizes.shape.slots;
  Pair pair{random_map(sizes.experts, slots, true),
            random_map(sizes.experts, slots, true),
            sizes.shape.ranks,
            {}};
  auto plan = plan_transfer(pair.from, pair.to, pair.ranks);
  RC_ASSERT(plan.has_value());
  pair.plan = *std::move(plan);
  return pair;
}

// Experts of a rank that it did not hold: each must come once and no more.
std::size_t fewest_sends(const Pair& pair) {
  std::size_t fewest = 0;
  const std::size_t width = pair.to.size() / pair.ranks;
  for (std::size_t rank = 0; rank < pair.ranks; ++rank) {
    const auto begin = static_cast<std::ptrdiff_t>(rank * width);
    const auto end = begin + static_cast<std::ptrdiff_t>(width);
    std::set<std::int32_t> lacking(pair.to.begin() + begin, pair.to.begin() + end);
    for (auto held = pair.from.begin() + begin; held != pair.from.begin() + end; ++held)
      lacking.erase(*held);
    lacking.erase(kNoExpert);
    fewest += lacking.size();
  }
  return fewest;
}

// 10 x 100 map pairs each (RapidCheck's default is 100 a property).
RC_GTEST_PROP(TransferPlan, InStagesFillsEverySlotAsTheNewMapSays, ()) {
  for (int i = 0; i < 10; ++i) {
    const Pair pair = random_pair();
    Ranks ranks(pair.from, pair.ranks);
    RC_ASSERT(run(staged_moves(pair.plan, pair.to), ranks) == fewest_sends(pair));
    check_slots(ranks, pair.to);
    for (std::size_t rank = 0; rank < pair.ranks; ++rank)
      RC_ASSERT(ranks.buffers[rank].size() == buffered_records(pair.plan[rank]));
  }
}

RC_GTEST_PROP(TransferPlan, InChainsNeedsOneSpareRecordAndSendsNoMore, ()) {
  for (int i = 0; i < 10; ++i) {
    const Pair pair = random_pair();
    Ranks ranks(pair.from, pair.ranks);
    RC_ASSERT(run(chained_moves(pair.plan, pair.to), ranks) == fewest_sends(pair));
    check_slots(ranks, pair.to);
    for (const auto& buffer : ranks.buffers) RC_ASSERT(buffer.size() <= 1u);
  }
}

RC_GTEST_PROP(TransferPlan, SharesReceiversEvenlyAmongHolders, ()) {
  const Pair pair = random_pair();
  std::map<std::int32_t, std::map<std::size_t, std::size_t>> served;
  for (std::size_t rank = 0; rank < pair.ranks; ++rank)
    for (const Send& send : pair.plan[rank].sends) ++served[send.expert][rank];
  for (const auto& [expert, by_rank] : served) {
    std::size_t most = 0, sum = 0;
    for (const auto& [rank, count] : by_rank) most = std::max(most, count), sum += count;
    std::set<std::size_t> holders;
    for (std::size_t slot = 0; slot < pair.from.size(); ++slot)
      if (pair.from[slot] == expert) holders.insert(slot / (pair.from.size() / pair.ranks));
    RC_ASSERT(most == (sum + holders.size() - 1) / holders.size());
  }
}

}  // namespace
}  // namespace lode::placement
