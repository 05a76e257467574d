#include "lode/moe/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "lode/comm/thread_group.h"
#include "lode/moe/expert_places.h"
#include "lode/moe/routing.h"
#include "lode/moe/test_layer.h"
#include "lode/moe/unrouted.h"
#include "lode/placement/linear_placement.h"

namespace lode::moe {
namespace {

using ops::Mode;
using ops::TestRows;
using placement::ExpertMap;
using test::kTokens;
using test::Layer;
using test::LayerShape;
using test::Scratch;

struct Trial {
  Mode mode = Mode::kExact;
  std::size_t rows = kTokens;
  std::size_t threads = 1;
  std::size_t chunk_rows = 0;
  std::size_t padding = 0;  // the last rows have no experts
  bool whole_bank = false;
  std::span<LayerWatch> watches{};  // [ranks], or nobody asks
};

std::vector<std::int32_t> tokens_of(const Trial& trial) {
  std::vector<std::int32_t> tokens(trial.rows, 7);
  std::fill(tokens.end() - static_cast<std::ptrdiff_t>(trial.padding), tokens.end(), -1);
  return tokens;
}

/// Room for an exchange.
class Room {
 public:
  explicit Room(const ExchangeShape& shape) {
    memory::Carver size;
    carve_exchange(size, shape);
    bytes_ = kernels::Lines(size.bytes());
    std::memset(bytes_.data(), 0xff, size.bytes());
    memory::Carver carver(std::span(bytes_.data(), size.bytes()));
    scratch_ = carve_exchange(carver, shape);
  }
  const ExchangeScratch& operator*() const { return scratch_; }

 private:
  kernels::Lines bytes_{0};
  ExchangeScratch scratch_;
};

/// The records of a rank's slots, as its bank holds them, and the layer with them.
class Bank {
 public:
  Bank(const MoeLayer& layer, const ExpertMap& map, std::size_t rank) : layer_(layer) {
    const std::vector<std::uint32_t> experts = experts_of_rank(map, rank);
    const std::size_t bytes = layer.record.record_bytes;
    bytes_ = kernels::Lines(experts.size() * bytes + 1);
    for (std::size_t record = 0; record < experts.size(); ++record) {
      std::memcpy(bytes_.data() + record * bytes, layer.experts.data() + experts[record] * bytes,
                  bytes);
    }
    layer_.experts = {bytes_.data(), experts.size() * bytes};
  }
  const MoeLayer& operator*() const { return layer_; }

 private:
  MoeLayer layer_;
  kernels::Lines bytes_{0};
};

Status run_rank(comm::Group& group, const Layer& layer, const ExpertMap& map, const Trial& trial,
                std::vector<float>& out) {
  const LayerShape& shape = layer.shape();
  const ops::TestCompute compute(trial.threads, trial.mode);
  const Scratch scratch(shape, trial.mode, trial.chunk_rows);
  const Room room({trial.rows, group.size(), shape.router.num_experts, map.slots_per_rank(),
                   shape.router.top_k, shape.hidden, trial.mode});
  const Bank bank(*layer, map, group.rank());
  const MoeLayer& own = trial.whole_bank ? *layer : *bank;
  ExpertPlaces places(group, {map}, trial.whole_bank);
  places.watch(trial.watches.empty() ? std::span<LayerWatch>{}
                                     : trial.watches.subspan(group.rank(), 1));
  const TestRows all(kTokens, shape.hidden, Mode::kExact, test::kInputSeed);
  const TestRows x(trial.rows, shape.hidden, trial.mode, 3);
  const TestRows start(kTokens, shape.hidden, Mode::kExact, test::kStartSeed);
  const TestRows sums(trial.rows, shape.hidden, Mode::kExact, 3);
  for (std::size_t row = 0; row < trial.rows; ++row) {
    std::copy_n(all->row(row).begin(), shape.hidden, x->row(row).begin());
    std::copy_n(start->row(row).begin(), shape.hidden, sums->row(row).begin());
  }
  ops::pack_rows(*compute, *x, trial.rows, input_forms(*compute, own));
  const std::vector<std::int32_t> tokens = tokens_of(trial);
  route_rows(*compute, own, {*x, trial.rows, tokens}, *scratch);
  const RowRange rows = rows_of_rank(trial.rows, group.size(), group.rank());
  LODE_TRY_STATUS(
      exchange_experts(*compute, own, places.layer(0), {*x, *sums, rows}, *scratch, *room));
  run_unrouted(*compute, own,
               {*x, rows.count, std::span(tokens).subspan(rows.first, rows.count), rows.first},
               *scratch, *sums);
  LODE_TRY_STATUS(gather_rows(group, *sums, trial.rows, *room));
  out = sums.numbers();
  return {};
}

void expect_bits(const Layer& layer, const ExpertMap& map, const Trial& trial) {
  const Scratch scratch(layer.shape(), trial.mode);
  const std::vector<float> want =
      run(layer, trial.mode, {1, 0, trial.rows, tokens_of(trial)}, scratch);
  std::vector<std::vector<float>> got(map.ranks());
  const Status status = comm::run_ranks(map.ranks(), {}, [&](comm::Group& group) {
    return run_rank(group, layer, map, trial, got[group.rank()]);
  });
  ASSERT_TRUE(status) << to_string(status.error());
  for (const std::vector<float>& one : got) {
    ASSERT_EQ(one.size(), want.size());
    EXPECT_EQ(std::memcmp(one.data(), want.data(), want.size() * sizeof(float)), 0);
  }
}

/// Any slots for the experts, each of which has one: the rest is drawn.
ExpertMap random_map(std::size_t num_experts, std::size_t slots, std::size_t ranks,
                     std::mt19937& random) {
  std::vector<std::int32_t> experts(slots);
  std::iota(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(num_experts), 0);
  for (std::size_t slot = num_experts; slot < slots; ++slot) {
    experts[slot] = static_cast<std::int32_t>(random() % num_experts);
  }
  std::shuffle(experts.begin(), experts.end(), random);
  return *ExpertMap::make(experts, num_experts, ranks);
}

constexpr std::size_t kExperts = 6;

LayerShape shape_of(const formats::Encoding& encoding) {
  LayerShape shape;
  shape.encoding = encoding;
  shape.hidden = 83;
  shape.inner = 45;
  shape.bias = true;
  shape.router.num_zero_experts = 2;
  shape.shared = 51;
  return shape;
}

class EncodingsOverRanks : public testing::TestWithParam<std::string_view> {
 protected:
  Layer layer_{shape_of(*formats::encoding_by_name(GetParam()))};
};

TEST_P(EncodingsOverRanks, GiveTheBitsOfOneRankForAnyNumberOfRanks) {
  for (const Mode mode : {Mode::kExact, Mode::kFast}) {
    for (const std::size_t ranks : {1U, 2U, 3U, 4U, 8U}) {
      expect_bits(layer_, *placement::dealt_map(kExperts, ranks, placement::Order::kLinear),
                  {.mode = mode});
    }
    expect_bits(layer_, *placement::dealt_map(kExperts, 4, placement::Order::kRoundRobin),
                {.mode = mode, .threads = 2});
  }
}

TEST_P(EncodingsOverRanks, GiveTheBitsOfOneRankForAnyMap) {
  std::mt19937 random(17);
  for (const std::size_t ranks : {2U, 4U}) {
    for (const std::size_t slots : {8U, 12U, 16U}) {
      expect_bits(layer_, random_map(kExperts, slots, ranks, random), {.mode = Mode::kFast});
      expect_bits(layer_, random_map(kExperts, slots, ranks, random), {.whole_bank = true});
    }
  }
}

TEST_P(EncodingsOverRanks, GiveTheBitsOfOneRankForAnyChunkAndFewRows) {
  std::mt19937 random(18);
  const ExpertMap map = random_map(kExperts, 8, 4, random);
  for (const std::size_t chunk : {1U, 3U, 64U}) expect_bits(layer_, map, {.chunk_rows = chunk});
  for (const std::size_t rows : {1U, 2U, 3U, 5U}) expect_bits(layer_, map, {.rows = rows});
  expect_bits(layer_, map, {.rows = 9, .padding = 4});
  expect_bits(layer_, map, {.rows = 2, .padding = 2});
}

INSTANTIATE_TEST_SUITE_P(Exchange, EncodingsOverRanks,
                         testing::Values("bf16", "mxfp4", "nvfp4", "fp8-block"),
                         [](const auto& tested) {
                           std::string name(tested.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Exchange, TakesAllTokensToOneExpert) {
  Layer layer(LayerShape{});
  std::vector<float> bias(kExperts, -100.0F);
  bias[4] = 100.0F;
  bias[1] = 50.0F;
  layer.layer().router_bias = bias;
  std::mt19937 random(19);
  expect_bits(layer, random_map(kExperts, 8, 4, random), {});
}

TEST(Exchange, TakesEveryTokenToEveryExpert) {
  LayerShape shape;
  shape.router.top_k = shape.router.num_experts;
  std::mt19937 random(20);
  expect_bits(Layer(shape), random_map(kExperts, 8, 2, random), {});
}

TEST(Exchange, PutsWeightsOnTheInputWhereTheyBelong) {
  LayerShape shape;
  shape.router = {families::Score::kSigmoid, kExperts, 1};
  shape.router.weight_on_input = true;
  expect_bits(Layer(shape), *placement::dealt_map(kExperts, 2, placement::Order::kLinear), {});
}

TEST(Exchange, NotesWhatWasChosenAndComputedWhereSomebodyAsks) {
  const Layer layer(shape_of(formats::kPlainBf16));
  const ExpertMap map = *placement::initial_map(kExperts, 8, 2);
  std::vector<std::uint32_t> chosen(2 * kExperts);
  std::array<LayerWatch, 2> watches;
  for (std::size_t rank = 0; rank < 2; ++rank)
    watches[rank].chosen = std::span(chosen).subspan(rank * kExperts, kExperts);
  const Trial trial{.padding = 9, .watches = watches};
  expect_bits(layer, map, trial);

  // The same rows on one rank say what was chosen.
  const Scratch scratch(layer.shape(), Mode::kExact);
  run(layer, Mode::kExact, {1, 0, kTokens, tokens_of(trial)}, scratch);
  std::vector<std::uint32_t> want(kExperts);
  std::uint64_t pairs = 0;
  for (const std::int32_t id : (*scratch).ids.first(kTokens * layer.shape().router.top_k)) {
    if (id < 0) continue;
    ++want[static_cast<std::size_t>(id)];
    ++pairs;
  }
  for (std::size_t expert = 0; expert < kExperts; ++expert)
    EXPECT_EQ(chosen[expert] + chosen[kExperts + expert], want[expert]);
  EXPECT_EQ(watches[0].rows + watches[1].rows, pairs);
  EXPECT_GT(watches[0].computing.count(), 0);
  EXPECT_GT(watches[1].exchanging.count(), 0);
  EXPECT_EQ(watches[0].times.samples(), 1U);
}

TEST(Exchange, EndsAllRanksWhereTheirMapsDisagree) {
  const Layer layer(LayerShape{});
  const Status status = comm::run_ranks(2, {}, [&](comm::Group& group) {
    std::vector<float> out;
    // Rank 1 takes rank 0 to have all experts, which has the first three.
    const bool first = group.rank() == 0;
    const ExpertMap map = first
                              ? *placement::initial_map(kExperts, 6, 2)
                              : *ExpertMap::make({0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0}, kExperts, 2);
    return run_rank(group, layer, map, {}, out);
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kPeerLost);
  EXPECT_THAT(to_string(status.error()), testing::HasSubstr("same checkpoint"));
}

TEST(RowsOfRank, ShareAllRowsInOrder) {
  for (const std::size_t rows : {0U, 1U, 7U, 8U}) {
    for (const std::size_t ranks : {1U, 3U, 8U}) {
      std::size_t next = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const RowRange range = rows_of_rank(rows, ranks, rank);
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.count, rows_of_rank(rows, ranks, 0).count);
        next += range.count;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

}  // namespace
}  // namespace lode::moe
