#include "lode/layout/half_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/layout/test_gate_up.h"

namespace lode::layout {
namespace {

using testing::bytes_of;
using testing::GoldenCase;
using testing::random_bytes;
using testing::tensor_of;
using Bytes = std::vector<std::byte>;

struct Layer {
  std::uint64_t experts, half_rows, row_bytes, scale_bytes;
  Bytes weight, scale, bias;

  GateUpTensors tensors(memory::Ledger& ledger) const {
    GateUpTensors made{tensor_of(ledger, {experts, 2 * half_rows, row_bytes}, weight),
                       tensor_of(ledger, {experts, 2 * half_rows, scale_bytes}, scale),
                       tensor_of(ledger, {experts, 2 * half_rows}, bias)};
    return made;
  }
};

Layer random_layer(std::mt19937& random) {
  Layer layer{
      1 + random() % 4, 1 + random() % 40, 1 + random() % 300, 1 + random() % 20, {}, {}, {}};
  const std::uint64_t rows = layer.experts * 2 * layer.half_rows;
  layer.weight = random_bytes(rows * layer.row_bytes, random);
  layer.scale = random_bytes(rows * layer.scale_bytes, random);
  layer.bias = random_bytes(rows, random);
  return layer;
}

Bytes expected(const Bytes& from, std::uint64_t experts) {
  Bytes to(from.size());
  const std::uint64_t size = from.size() / experts;
  for (std::uint64_t at = 0; at < from.size(); ++at) {
    to[at / size * size + half_swapped(at % size, size / 2)] = from[at];
  }
  return to;
}

TEST(HalfSwap, IsWhatTheEnginesCodeComputed) {
  const GoldenCase golden("reorder_w1w3_to_w3w1");
  memory::Ledger ledger(kMiB);
  GateUpTensors tensors{tensor_of(ledger, {3, 48, 16}, golden.bytes("in.w13")),
                        tensor_of(ledger, {3, 48, 2}, golden.bytes("in.w13_scale")),
                        {}};
  const auto plan = plan_half_swap(tensors);
  ASSERT_TRUE(plan) << to_string(plan.error());
  tensors = run(*plan, std::move(tensors));
  EXPECT_EQ(bytes_of(tensors.weight), golden.bytes("out.w13"));
  EXPECT_EQ(bytes_of(tensors.scale), golden.bytes("out.w13_scale"));
}

TEST(HalfSwap, PutsEveryByteWhereTheFunctionSaysForAnyChunkAndThreads) {
  std::mt19937 random(5);
  parallel::ThreadPool pool(3);
  memory::Ledger ledger(64 * kMiB);
  for (int round = 0; round < 20; ++round) {
    const Layer layer = random_layer(random);
    const std::uint64_t chunk = round % 4 == 0   ? 1
                                : round % 4 == 1 ? kMaxSwapChunkBytes
                                                 : 1 + random() % 5000;
    GateUpTensors tensors = layer.tensors(ledger);
    const auto plan = plan_half_swap(tensors, chunk);
    ASSERT_TRUE(plan) << to_string(plan.error());
    tensors = run(*plan, std::move(tensors), round % 2 == 0 ? &pool : nullptr);
    EXPECT_EQ(bytes_of(tensors.weight), expected(layer.weight, layer.experts));
    EXPECT_EQ(bytes_of(tensors.scale), expected(layer.scale, layer.experts));
    EXPECT_EQ(bytes_of(tensors.bias), expected(layer.bias, layer.experts));

    tensors = run(*plan, std::move(tensors));
    EXPECT_EQ(bytes_of(tensors.weight), layer.weight) << "twice is nothing";
    EXPECT_EQ(bytes_of(tensors.scale), layer.scale);
  }
}

TEST(HalfSwap, ReservesNothing) {
  std::mt19937 random(6);
  const Layer layer = random_layer(random);
  memory::Ledger ledger(kMiB);
  GateUpTensors tensors = layer.tensors(ledger);
  const std::uint64_t before = ledger.peak_bytes();
  const auto plan = plan_half_swap(tensors);
  ASSERT_TRUE(plan);
  tensors = run(*plan, std::move(tensors));
  EXPECT_EQ(ledger.peak_bytes(), before);
}

TEST(HalfSwap, RefusesTensorsThatAreNotGateAndUpOfOneLayer) {
  memory::Ledger ledger(kMiB);
  const auto error_of = [&](const tensor::Shape& weight, const tensor::Shape& scale) {
    GateUpTensors tensors{tensor_of(ledger, weight, Bytes(weight.elements())),
                          tensor_of(ledger, scale, Bytes(scale.elements())),
                          {}};
    const auto plan = plan_half_swap(tensors);
    return plan ? std::string() : to_string(plan.error());
  };
  EXPECT_EQ(error_of({2, 6, 8}, {2, 6, 1}), "");
  EXPECT_THAT(error_of({2, 5, 8}, {2, 6, 1}), ::testing::HasSubstr("even number of rows"));
  EXPECT_THAT(error_of({12, 8}, {2, 6, 1}), ::testing::HasSubstr("3 extents"));
  EXPECT_THAT(error_of({2, 6, 8}, {3, 4, 1}), ::testing::HasSubstr("2 experts"));
  EXPECT_THAT(error_of({2, 6, 8}, {2, 3, 1}), ::testing::HasSubstr("scale of gate and up"));
}

TEST(HalfSwap, RefusesAMissingWeightAndChunksThatAreNone) {
  memory::Ledger ledger(kMiB);
  EXPECT_EQ(plan_half_swap({}).error().code, Code::kInvalidSource);
  GateUpTensors tensors{tensor_of(ledger, {1, 2, 4}, Bytes(8)), {}, {}};
  EXPECT_EQ(plan_half_swap(tensors, 0).error().code, Code::kUsage);
  EXPECT_EQ(plan_half_swap(tensors, kMaxSwapChunkBytes + 1).error().code, Code::kUsage);
}

// The example of weight_layouts 2.1: 256 experts, K = 7168 in FP4, chunks of 73 rows.
TEST(HalfSwap, KnowsWhatTheEnginesHoldForIt) {
  EXPECT_EQ(engine_half_swap_bytes(2048, 917504), 73U * 917504U);
  EXPECT_EQ(engine_half_swap_bytes(4, 100), 400U);
  EXPECT_EQ(engine_half_swap_bytes(4, 100 * kMiB), 100 * kMiB);
}

}  // namespace
}  // namespace lode::layout
