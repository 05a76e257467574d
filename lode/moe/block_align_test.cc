#include "lode/moe/block_align.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "lode/moe/test_golden.h"

namespace lode::moe {
namespace {

using Ids = std::vector<std::int32_t>;

struct Blocks {
  Ids sorted, experts;
  std::size_t used = 0;
};

Blocks align(const BlockShape& shape, const Ids& ids) {
  const std::size_t capacity = block_capacity(shape, ids.size());
  Blocks out{Ids(capacity, 99), Ids((capacity + shape.block - 1) / shape.block, 99), 0};
  std::vector<std::uint32_t> first(shape.num_experts + 1, 99);
  out.used = align_blocks(shape, ids, first, {out.sorted, out.experts});
  return out;
}

Ids ids_of(const json::Value& list) {
  Ids out;
  for (const float id : test::floats(list)) out.push_back(static_cast<std::int32_t>(id));
  return out;
}

TEST(BlockAlign, GivesTheGoldenBlocks) {
  std::size_t tried = 0;
  for (const json::Value& test : *test::section("moe_align").as_array()) {
    SCOPED_TRACE(tried++);
    Ids ids;
    for (const json::Value& row : *test.find("topk_ids")->as_array()) {
      for (const std::int32_t id : ids_of(row)) ids.push_back(id);
    }
    const json::Value& map = *test.find("expert_map");
    const Ids expert_map = map.is_null() ? Ids{} : ids_of(map);
    BlockShape shape;
    shape.block = static_cast<std::uint32_t>(test.find("block_size")->number());
    shape.num_experts = static_cast<std::uint32_t>(test.find("num_experts")->number());
    shape.expert_map = expert_map;
    shape.ignore_invalid = *test.find("ignore_invalid_experts")->as_bool();
    const Blocks got = align(shape, ids);
    EXPECT_EQ(got.used, static_cast<std::size_t>(test.find("num_tokens_post_padded")->number()));
    EXPECT_EQ(got.sorted, ids_of(*test.find("sorted_token_ids")));
    EXPECT_EQ(got.experts, ids_of(*test.find("expert_ids")));
    EXPECT_EQ(got.sorted.size(),
              static_cast<std::size_t>(test.find("sorted_token_ids_len")->number()));
    EXPECT_EQ(got.experts.size(),
              static_cast<std::size_t>(test.find("max_num_m_blocks")->number()));
  }
  EXPECT_EQ(tried, 7U);
}

/// Every pair that takes part lies once, rising, in blocks of its own expert; nothing else does.
void expect_properties(const BlockShape& shape, const Ids& ids, const Blocks& got) {
  const auto none = static_cast<std::int32_t>(ids.size());
  ASSERT_LE(got.used, got.sorted.size());
  ASSERT_EQ(got.used % shape.block, 0U);
  std::vector<int> seen(ids.size());
  for (std::size_t i = 0; i < got.sorted.size(); ++i) {
    const std::int32_t pair = got.sorted[i];
    if (pair == none) continue;
    ASSERT_LT(i, got.used);
    ++seen.at(static_cast<std::size_t>(pair));
    const std::int32_t id = ids[static_cast<std::size_t>(pair)];
    const bool mapped = !shape.expert_map.empty();
    EXPECT_EQ(got.experts[i / shape.block],
              mapped ? shape.expert_map[static_cast<std::size_t>(id)] : id);
    if (i % shape.block == 0) continue;
    EXPECT_LT(got.sorted[i - 1], pair);  // so a sentinel comes last in its block
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    bool part = ids[i] >= 0 && ids[i] < static_cast<std::int32_t>(shape.num_experts);
    if (part && shape.ignore_invalid && !shape.expert_map.empty()) {
      part = shape.expert_map[static_cast<std::size_t>(ids[i])] >= 0;
    }
    EXPECT_EQ(seen[i], part ? 1 : 0);
  }
  for (std::size_t block = 0; block < got.experts.size(); ++block) {
    const std::size_t at = block * shape.block;
    if (at < got.used) {
      EXPECT_NE(got.sorted[at], none);
    } else {
      EXPECT_EQ(got.experts[block], -1);
    }
  }
}

TEST(BlockAlign, HoldsEveryPairThatTakesPartOnceInBlocksOfItsExpert) {
  std::mt19937 random(3);
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    BlockShape shape;
    shape.block = 1 + below(9);
    shape.num_experts = 1 + below(12);
    shape.ignore_invalid = below(2) == 0;
    shape.pad_sorted_ids = below(2) == 0;
    Ids map(below(2) == 0 ? shape.num_experts : 0);
    std::int32_t locals = 0;
    for (std::int32_t& local : map) local = below(2) == 0 ? locals++ : -1;
    shape.expert_map = map;
    Ids ids(below(60));
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(below(shape.num_experts + 4)) - 2;
    for (std::int32_t& id : ids) {
      if (below(20) == 0) id = std::numeric_limits<std::int32_t>::min();
    }
    const Ids before = ids;
    const Blocks got = align(shape, ids);
    EXPECT_EQ(ids, before);
    expect_properties(shape, ids, got);
    if (shape.pad_sorted_ids && ids.size() >= shape.num_experts) {
      EXPECT_EQ(got.sorted.size() % shape.block, 0U);
    }
  }
}

TEST(BlockAlign, DropsLocalIdsBeyondTheExperts) {
  const Ids map = {7, 0};
  const BlockShape shape{2, 2, map, true, false};
  const Blocks got = align(shape, {0, 1, 0});
  EXPECT_EQ(got.used, 2U);
  EXPECT_EQ(got.sorted[0], 1);
  EXPECT_EQ(got.experts[0], 0);
}

}  // namespace
}  // namespace lode::moe
