#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lode/comm/thread_group.h"
#include "lode/eplb/migration.h"
#include "lode/eplb/test_banks.h"
#include "lode/moe/exchange.h"
#include "lode/moe/test_layer.h"
#include "lode/moe/unrouted.h"

// Passes over a layer of real records while its experts move between ranks.

namespace lode::eplb {
namespace {

using moe::test::kTokens;
using moe::test::Layer;
using moe::test::LayerShape;
using ops::Mode;
using ops::TestRows;
using test::ExpertMap;

constexpr std::size_t kRanks = 3, kExperts = 6, kSlotsPerRank = 4;

LayerShape shape_of(const formats::Encoding& encoding) {
  LayerShape shape;
  shape.encoding = encoding;
  shape.hidden = 83;
  shape.inner = 45;
  shape.bias = true;
  shape.shared = 51;
  return shape;
}

/// What a rank needs for a pass: room, its bank, the layer with it.
class RankLayer {
 public:
  RankLayer(const Layer& layer, const ExpertMap& map, std::size_t rank)
      : shape_(layer.shape()), layer_(*layer), scratch_(shape_, Mode::kFast) {
    const std::size_t bytes = record_bytes();
    bank_ = kernels::Lines(kSlotsPerRank * bytes);
    for (std::size_t slot = 0; slot < kSlotsPerRank; ++slot) {
      const auto expert = static_cast<std::size_t>(map.experts_on(rank)[slot]);
      std::memcpy(bank_.data() + slot * bytes, layer_.experts.data() + expert * bytes, bytes);
    }
    layer_.experts = bank();
    const moe::ExchangeShape exchange{
        kTokens, kRanks, kExperts, kSlotsPerRank, shape_.router.top_k, shape_.hidden, Mode::kFast};
    memory::Carver size;
    moe::carve_exchange(size, exchange);
    room_ = kernels::Lines(size.bytes());
    memory::Carver carver(std::span(room_.data(), size.bytes()));
    exchange_ = moe::carve_exchange(carver, exchange);
  }

  std::size_t record_bytes() const { return layer_.record.record_bytes; }
  std::span<std::byte> bank() { return {bank_.data(), kSlotsPerRank * record_bytes()}; }

  Result<std::vector<float>> pass(const moe::ExpertPlaces& places) {
    comm::Group& group = places.group();
    const ops::TestCompute compute(1, Mode::kFast);
    const TestRows all(kTokens, shape_.hidden, Mode::kExact, moe::test::kInputSeed);
    const TestRows x(kTokens, shape_.hidden, Mode::kFast, 3);
    const TestRows sums(kTokens, shape_.hidden, Mode::kExact, moe::test::kStartSeed);
    for (std::size_t row = 0; row < kTokens; ++row)
      std::copy_n(all->row(row).begin(), shape_.hidden, x->row(row).begin());
    ops::pack_rows(*compute, *x, kTokens, moe::input_forms(*compute, layer_));
    moe::route_rows(*compute, layer_, {*x, kTokens, {}}, *scratch_);
    const moe::RowRange rows = moe::rows_of_rank(kTokens, kRanks, group.rank());
    LODE_TRY_STATUS(moe::exchange_experts(*compute, layer_, places.layer(0), {*x, *sums, rows},
                                          *scratch_, exchange_));
    moe::run_unrouted(*compute, layer_, {*x, rows.count, {}, rows.first}, *scratch_, *sums);
    LODE_TRY_STATUS(moe::gather_rows(group, *sums, kTokens, exchange_));
    return sums.numbers();
  }

 private:
  LayerShape shape_;
  moe::MoeLayer layer_;
  moe::test::Scratch scratch_;
  kernels::Lines bank_{0}, room_{0};
  moe::ExchangeScratch exchange_;
};

/// Three maps after the first, a record a step: how many passes ran, and how many gave other bits.
struct Passes {
  std::size_t ran = 0, wrong = 0, maps = 0;
};

Status run_rank(comm::Group& group, const Layer& layer, const std::vector<float>& want,
                Passes& passes) {
  std::mt19937 random(23);
  const test::MapShape shape{kExperts, kSlotsPerRank, kRanks};
  const ExpertMap start = test::random_map(shape, false, random);
  moe::ExpertPlaces places(group, {start}, false);
  RankLayer rank(layer, start, group.rank());
  memory::Ledger ledger(std::uint64_t{1} << 30);
  LODE_TRY(Migration migration,
           Migration::make(places, ledger, {.step_bytes = rank.record_bytes(), .checksums = true}));
  const auto pass = [&]() -> Status {
    LODE_TRY(const std::vector<float> got, rank.pass(places));
    ++passes.ran;
    passes.wrong += got == want ? 0 : 1;
    return {};
  };
  LODE_TRY_STATUS(pass());
  for (int turn = 0; turn < 3; ++turn) {
    const ExpertMap target = test::random_map(shape, turn == 1, random);
    LODE_TRY_STATUS(migration.begin({0, target, rank.bank(), rank.record_bytes()}));
    while (migration.busy()) {
      LODE_TRY_STATUS(pass());
      LODE_TRY(const StepReport report, migration.step());
      passes.maps += report.committed ? 1 : 0;
    }
    LODE_TRY_STATUS(pass());
  }
  return {};
}

class EncodingsWhileMoving : public testing::TestWithParam<std::string_view> {};

TEST_P(EncodingsWhileMoving, GiveTheBitsOfOneRankBeforeDuringAndAfter) {
  const Layer layer(shape_of(*formats::encoding_by_name(GetParam())));
  const moe::test::Scratch scratch(layer.shape(), Mode::kFast);
  const std::vector<float> want = moe::test::run(layer, Mode::kFast, {}, scratch);
  std::vector<Passes> passes(kRanks);
  const Status status = comm::run_ranks(kRanks, {}, [&](comm::Group& group) {
    return run_rank(group, layer, want, passes[group.rank()]);
  });
  ASSERT_TRUE(status) << to_string(status.error());
  for (const Passes& one : passes) {
    EXPECT_GE(one.maps, 6U) << "several maps on the way";
    EXPECT_GE(one.ran, 10U);
    EXPECT_EQ(one.wrong, 0U);
  }
}
INSTANTIATE_TEST_SUITE_P(Eplb, EncodingsWhileMoving,
                         testing::Values("nvfp4", "mxfp4", "fp8-block", "bf16"));

}  // namespace
}  // namespace lode::eplb
