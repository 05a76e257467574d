#include "lode/targets/fp8_tensor.h"

#include <gtest/gtest.h>

#include <vector>

namespace lode::targets {
namespace {

using Bytes = std::vector<std::byte>;

LayerScalars scalars() {
  LayerScalars scalars;
  scalars.gate_scale = {1.0F, 0.5F};
  scalars.up_scale = {1.0F, 2.0F};
  return scalars;
}

Bytes applied(const OneScale& one, std::uint32_t half, Bytes codes) {
  one.apply(half, codes, codes);
  return codes;
}

TEST(OneScale, IsTheLargerOfGateAndUpAndBothHalvesFollow) {
  const OneScale one = one_scale(ExpertsShape{}, scalars(), 1);
  EXPECT_EQ(one.scale, 2.0F);
  // 1 * 0.5 / 2 = 0.25 = 0x28; 1 * 2 / 2 = 1.
  EXPECT_EQ(applied(one, 0, Bytes(3, std::byte{0x38})), Bytes(3, std::byte{0x28}));
  EXPECT_EQ(applied(one, 1, Bytes(3, std::byte{0x38})), Bytes(3, std::byte{0x38}));
}

TEST(OneScale, RequantisesHalvesOfEqualScalesToo) {
  EXPECT_TRUE(one_scale(ExpertsShape{}, scalars(), 0).changes);
  EXPECT_EQ(one_scale(ExpertsShape{}, scalars(), 0).maps[0].of[0x7F], 0x7E);
}

TEST(OneScale, LeavesALayerThatIsNotGatedAndOneQuantisedTogether) {
  ExpertsShape up_alone;
  up_alone.gated = false;
  LayerScalars together = scalars();
  together.one_scale = true;
  for (const OneScale& one :
       {one_scale(up_alone, scalars(), 1), one_scale(ExpertsShape{}, together, 1)}) {
    EXPECT_FALSE(one.changes);
    EXPECT_EQ(one.scale, 0.5F);
    EXPECT_EQ(applied(one, 0, Bytes(3, std::byte{0x7F})), Bytes(3, std::byte{0x7F}));
  }
}

}  // namespace
}  // namespace lode::targets
