// What a model and its caches reserve is what the pure functions say, byte for byte.
#include <gtest/gtest.h>

#include <limits>

#include "lode/model/kv_cache.h"
#include "lode/model/scratch.h"

namespace lode::model {
namespace {

families::ModelSpec spec_of() {
  families::ModelSpec spec;
  spec.num_layers = 3;
  spec.hidden = 100;
  spec.vocab = 320;
  spec.num_heads = 6;
  spec.num_kv_heads = 2;
  spec.head_dim = 20;
  spec.intermediate = 250;
  spec.expert_intermediate = 90;
  spec.rope.rotary_dim = 20;
  spec.router = {families::Score::kSoftmax, 8, 2};
  spec.layers = {{true, 0}, {true, 16}, {false, 0}};
  return spec;
}

TEST(KvSlots, OfAWindowAreTheWindowAndAPassLessOne) {
  EXPECT_EQ(kv_slots({true, 0}, {1000, 8}), 1000U);
  EXPECT_EQ(kv_slots({true, 16}, {1000, 8}), 23U);
  EXPECT_EQ(kv_slots({true, 16}, {1000, 1}), 16U);
  EXPECT_EQ(kv_slots({true, 16}, {20, 8}), 20U);
}

TEST(KvCacheBytes, AreWhatTheLedgerHolds) {
  const families::ModelSpec spec = spec_of();
  for (const auto format : {ops::KvFormat::kF32, ops::KvFormat::kF16}) {
    const KvShape shape{5000, 33, format};
    memory::Ledger ledger(std::uint64_t{1} << 40);
    const auto cache = KvCache::make(ledger, spec, shape);
    ASSERT_TRUE(cache);
    EXPECT_EQ(ledger.held_bytes(memory::Tag::kKvCache), kv_cache_bytes(spec, shape));
    EXPECT_EQ(ledger.held_bytes(memory::Tag::kPageTables),
              memory::page_table_bytes(kv_cache_bytes(spec, shape)));
    // Two full layers and a ring, keys and values, two heads of 20, each half up to whole lines.
    const std::uint64_t number = ops::bytes_per_number(format);
    const auto lines = [](std::uint64_t bytes) { return (bytes + 63) / 64 * 64; };
    const std::uint64_t numbers =
        2 * (2 * lines(5000 * 40 * number) + lines((16 + 32) * 40 * number));
    EXPECT_EQ(kv_cache_bytes(spec, shape), memory::mapped_bytes(numbers));
  }
}

TEST(KvCacheBytes, OfMoreTokensThanThereAreBytesAreRefusedAndNotWrapped) {
  const families::ModelSpec spec = spec_of();
  memory::Ledger ledger(std::uint64_t{1} << 40);
  for (const std::uint64_t tokens : {std::uint64_t{1} << 32, std::uint64_t{1} << 62,
                                     std::numeric_limits<std::uint64_t>::max()}) {
    const auto cache = KvCache::make(ledger, spec, {tokens, 1});
    ASSERT_FALSE(cache);
    EXPECT_EQ(cache.error().code, Code::kOverBudget);
    EXPECT_GE(kv_cache_bytes(spec, {tokens, 1}), tokens);
  }
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST(KvCache, IsRefusedByALedgerThatHasNoRoom) {
  const families::ModelSpec spec = spec_of();
  for (std::uint64_t refused = 0; refused < 2; ++refused) {
    memory::FailingLedger ledger(std::uint64_t{1} << 40, refused);
    EXPECT_FALSE(KvCache::make(ledger, spec, {100, 1}));
    EXPECT_TRUE(ledger.refused());
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST(ScratchBytes, GrowWithRowsAndThreadsAndAreMorePackedInFastMode) {
  const families::ModelSpec spec = spec_of();
  const auto bytes = [&](std::uint32_t chunk, std::uint32_t threads, ops::Mode mode) {
    memory::Carver carver;
    carve_scratch(carver, spec, {chunk, threads, mode});
    EXPECT_EQ(scratch_bytes(spec, {chunk, threads, mode}), memory::mapped_bytes(carver.bytes()));
    return carver.bytes();
  };
  const std::size_t one = bytes(1, 1, ops::Mode::kExact);
  const std::size_t tile = bytes(1, 2, ops::Mode::kExact) - one;
  EXPECT_EQ(tile, 64U * 16 * 16 * sizeof(float));
  EXPECT_GT(bytes(512, 1, ops::Mode::kExact), 400 * (one - tile) / 2);
  EXPECT_GT(bytes(512, 1, ops::Mode::kFast), bytes(512, 1, ops::Mode::kExact));
}

TEST(Scratch, HasNoAnglesWithoutRope) {
  families::ModelSpec spec = spec_of();
  std::vector<std::byte> block(std::size_t{16} << 20);
  const auto angles = [&] {
    memory::Carver carver(block);
    return carve_scratch(carver, spec, {4, 1, ops::Mode::kExact}).cosines.size();
  };
  EXPECT_EQ(angles(), 4U * 10);
  spec.rope.kind = families::RopeKind::kNone;
  EXPECT_EQ(angles(), 0U);
}

TEST(Scratch, HasNoRoomForDenseLayersThatTheModelHasNot) {
  families::ModelSpec spec = spec_of();
  const std::uint64_t with = scratch_bytes(spec, {4096, 1, ops::Mode::kExact});
  spec.layers[2].moe = true;
  EXPECT_LT(scratch_bytes(spec, {4096, 1, ops::Mode::kExact}), with);
}

}  // namespace
}  // namespace lode::model
