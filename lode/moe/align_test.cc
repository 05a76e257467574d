#include "lode/moe/align.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "lode/moe/test_golden.h"

namespace lode::moe {
namespace {

struct Order {
  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> order;
};

Order order_of(const std::vector<std::int32_t>& ids, std::size_t num_experts) {
  Order out{std::vector<std::uint32_t>(num_experts + 1, 99),
            std::vector<std::uint32_t>(ids.size(), 99)};
  order_by_expert(ids, {out.first, out.order});
  out.order.resize(out.first.back());
  return out;
}

/// The padded form of the golden file: blocks of one expert each, n where nothing is.
struct Blocks {
  std::vector<float> sorted, experts;
  std::size_t used = 0;
};

Blocks in_blocks(const Order& order, std::size_t block, std::size_t pairs) {
  Blocks out;
  for (std::size_t expert = 0; expert + 1 < order.first.size(); ++expert) {
    const std::size_t begin = order.first[expert], end = order.first[expert + 1];
    for (std::size_t at = begin; at < end; at += block) {
      out.experts.push_back(static_cast<float>(expert));
      for (std::size_t i = at; i < at + block; ++i) {
        out.sorted.push_back(static_cast<float>(i < end ? order.order[i] : pairs));
      }
    }
  }
  out.used = out.sorted.size();
  return out;
}

TEST(ExpertOrder, IsTheGoldenBlockAlignmentWithoutItsPadding) {
  for (const json::Value& test : *test::section("moe_align").as_array()) {
    std::vector<std::int32_t> ids;
    for (const json::Value& row : *test.find("topk_ids")->as_array()) {
      for (const float id : test::floats(row)) ids.push_back(static_cast<std::int32_t>(id));
    }
    const bool ignore = *test.find("ignore_invalid_experts")->as_bool();
    const json::Value& map = *test.find("expert_map");
    const std::vector<float> local = map.is_null() ? std::vector<float>{} : test::floats(map);
    const auto experts = static_cast<std::size_t>(test.find("num_experts")->number());
    const std::size_t pairs = ids.size();
    if (ignore && !local.empty()) {  // foreign experts take no part: renumber first
      for (std::int32_t& id : ids) {
        const bool known = id >= 0 && static_cast<std::size_t>(id) < experts;
        id = known ? static_cast<std::int32_t>(local[static_cast<std::size_t>(id)]) : -1;
      }
    }
    const auto block = static_cast<std::size_t>(test.find("block_size")->number());
    Blocks got = in_blocks(order_of(ids, experts), block, pairs);
    for (float& expert : got.experts) {
      if (!ignore && !local.empty()) expert = local[static_cast<std::size_t>(expert)];
    }
    EXPECT_EQ(got.used, static_cast<std::size_t>(test.find("num_tokens_post_padded")->number()));
    const auto want_sorted = test::floats(*test.find("sorted_token_ids"));
    const auto want_experts = test::floats(*test.find("expert_ids"));
    got.sorted.resize(want_sorted.size(), static_cast<float>(pairs));
    got.experts.resize(want_experts.size(), -1.0F);
    EXPECT_EQ(got.sorted, want_sorted);
    EXPECT_EQ(got.experts, want_experts);
  }
}

TEST(ExpertOrder, HoldsEveryValidPairOnceAndRising) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::size_t experts = 1 + random() % 9;
    std::vector<std::int32_t> ids(random() % 40);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % (experts + 3)) - 2;
    const Order got = order_of(ids, experts);
    std::size_t at = 0;
    for (std::size_t expert = 0; expert < experts; ++expert) {
      EXPECT_EQ(got.first[expert], at);
      for (std::uint32_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != static_cast<std::int32_t>(expert)) continue;
        EXPECT_EQ(got.order.at(at++), i);
      }
    }
    EXPECT_EQ(got.first[experts], at);
  }
}

}  // namespace
}  // namespace lode::moe
