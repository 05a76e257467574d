#include "lode/placement/packing.h"

#include <gtest/gtest.h>

#include "lode/placement/test_golden.h"

namespace lode::placement {
namespace {

std::vector<float> rounded(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

TEST(Packing, PutsItemsWhereDeepSeeksProgramDoes) {
  PackingRoom room;
  for (const json::Value& one : golden::cases("balanced_packing")) {
    const auto weights = golden::rows<double>(one, "weight");
    const auto packs = golden::rows<std::int32_t>(one, "pack_index");
    const auto places = golden::rows<std::int32_t>(one, "rank_in_pack");
    for (std::size_t row = 0; row < weights.size(); ++row) {
      const auto f32 = rounded(weights[row]);
      const std::vector<double> weight(f32.begin(), f32.end());
      std::vector<std::int32_t> pack(weight.size()), place(weight.size());
      pack_evenly(weight, golden::size(one, "num_packs"), pack, place, room);
      EXPECT_EQ(pack, packs[row]);
      EXPECT_EQ(place, places[row]);
    }
  }
}

TEST(Packing, ReplicatesAsDeepSeeksProgramDoes) {
  PackingRoom room;
  for (const json::Value& one : golden::cases("replicate_experts")) {
    const auto loads = golden::rows<double>(one, "weight");
    for (std::size_t row = 0; row < loads.size(); ++row) {
      const auto f32 = rounded(loads[row]);
      const std::vector<double> load(f32.begin(), f32.end());
      const std::size_t slots = golden::size(one, "num_phy");
      std::vector<std::int32_t> expert(slots), replica(slots), count(load.size());
      replicate(load, expert, replica, count, room);
      EXPECT_EQ(expert, golden::rows<std::int32_t>(one, "phy2log")[row]);
      EXPECT_EQ(replica, golden::rows<std::int32_t>(one, "replica_rank")[row]);
      EXPECT_EQ(count, golden::rows<std::int32_t>(one, "logcnt")[row]);
    }
  }
}

}  // namespace
}  // namespace lode::placement
