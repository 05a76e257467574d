#include "lode/moe/align.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

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

TEST(ExpertOrder, PassesOverIdsThatAreNone) {
  const Order got = order_of({-1, 0, 4, 11, std::numeric_limits<std::int32_t>::min(), 3, 0}, 4);
  EXPECT_EQ(got.first, (std::vector<std::uint32_t>{0, 2, 2, 2, 3}));
  EXPECT_EQ(got.order, (std::vector<std::uint32_t>{1, 6, 5}));
  EXPECT_TRUE(order_of({-1, -1}, 4).order.empty());
}

}  // namespace
}  // namespace lode::moe
