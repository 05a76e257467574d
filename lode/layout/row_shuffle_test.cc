#include "lode/layout/row_shuffle.h"

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

constexpr GateUpOrder kOrders[]{GateUpOrder::kGateThenUp, GateUpOrder::kUpThenGate,
                                GateUpOrder::kGateUpInTurn, GateUpOrder::kUpGateInTurn,
                                GateUpOrder::kUpGateBy64};
constexpr RowShuffle kShuffles[]{RowShuffle::kNone, RowShuffle::kBy16, RowShuffle::kBy32};

TEST(RowShuffle, IsWhatTheEnginesCodeComputed) {
  const GoldenCase golden("shuffle_matrix_sf_a");
  const Bytes weight = golden.bytes("in.w");
  for (const auto& [shuffle, name] : {std::pair{RowShuffle::kBy32, "out.w_shuffled"},
                                      std::pair{RowShuffle::kBy16, "out.w_shuffled16"}}) {
    const OrderedRows from{rows_of(weight, 1, 256), {1, 64, {}, shuffle}, 256};
    Bytes out(weight.size());
    ordered_rows_into(from, 0, out);
    EXPECT_EQ(out, golden.bytes(name)) << name;

    memory::Ledger ledger(kMiB);
    GateUpTensors tensors{tensor_of(ledger, {1, 64, 256}, weight), {}, {}};
    const auto plan = plan_row_shuffle(tensors, {1, 64}, {1, 64, {}, shuffle});
    ASSERT_TRUE(plan) << to_string(plan.error());
    tensors = run(*plan, std::move(tensors));
    EXPECT_EQ(bytes_of(tensors.weight), golden.bytes(name)) << name << " in place";
  }
}

/// Two experts whose rows are in turn, and the order that they are to have.
struct Turned {
  RowOrder from;
  RowOrder to;
  std::uint64_t row_bytes = 0;
  Bytes weight;
  Bytes bias;

  std::uint64_t expert_bytes() const { return from.rows() * row_bytes; }
  MatrixRows rows(std::uint64_t expert) const {
    return rows_of(std::span(weight).subspan(expert * expert_bytes(), expert_bytes()), 2, row_bytes,
                   GateUpOrder::kGateUpInTurn);
  }
  GateUpTensors tensors(memory::Ledger& ledger) const {
    return {tensor_of(ledger, {2, from.rows(), row_bytes}, weight),
            {},
            tensor_of(ledger, {2, from.rows()}, bias, formats::Format::kBf16)};
  }
  /// Every row where the function says.
  Bytes expected() const {
    Bytes want(weight.size());
    for (std::uint64_t at = 0; at < 2 * from.rows(); ++at) {
      const std::uint64_t expert = at / from.rows();
      const HalfRow row = from.at(at % from.rows());
      std::memcpy(want.data() + expert * expert_bytes() + ordered_offset(to, row_bytes, row, 0),
                  rows(expert).row(row).data(), row_bytes);
    }
    return want;
  }
};

Turned random_turned(GateUpOrder order, RowShuffle shuffle, std::mt19937& random) {
  const std::uint64_t half_rows = 64 * (1 + random() % 2);
  Turned one{{2, half_rows, GateUpOrder::kGateUpInTurn, RowShuffle::kNone},
             {2, half_rows, order, shuffle},
             random() % 3 == 0 ? 4096 + random() % 300 : 1 + random() % 90,
             {},
             {}};
  one.weight = random_bytes(2 * one.expert_bytes(), random);
  one.bias = random_bytes(2 * one.from.rows() * 2, random);
  return one;
}

class Shuffled : public ::testing::TestWithParam<std::tuple<GateUpOrder, RowShuffle>> {};

TEST_P(Shuffled, RowsLieWhereTheOrderSaysInPlaceAndOutOfPlace) {
  std::mt19937 random(7);
  parallel::ThreadPool pool(3);
  memory::Ledger ledger(64 * kMiB);
  for (int round = 0; round < 3; ++round) {
    const Turned one = random_turned(std::get<0>(GetParam()), std::get<1>(GetParam()), random);
    const Bytes want = one.expected();
    Bytes out(want.size());
    for (const std::uint64_t expert : {0U, 1U}) {
      ordered_rows_into({one.rows(expert), one.to, one.row_bytes}, 0,
                        std::span(out).subspan(expert * one.expert_bytes(), one.expert_bytes()));
    }
    EXPECT_EQ(out, want);

    GateUpTensors tensors = one.tensors(ledger);
    const auto plan = plan_row_shuffle(tensors, one.from, one.to);
    ASSERT_TRUE(plan) << to_string(plan.error());
    tensors = run(*plan, std::move(tensors), round == 1 ? &pool : nullptr);
    EXPECT_EQ(bytes_of(tensors.weight), want);

    const auto back = plan_row_shuffle(tensors, one.to, one.from);
    ASSERT_TRUE(back) << to_string(back.error());
    tensors = run(*back, std::move(tensors), &pool);
    EXPECT_EQ(bytes_of(tensors.weight), one.weight);
    EXPECT_EQ(bytes_of(tensors.bias), one.bias);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Shuffled,
                         ::testing::Combine(::testing::ValuesIn(kOrders),
                                            ::testing::ValuesIn(kShuffles)));

TEST(RowShuffle, PadsEachHalfAndEachRow) {
  const Bytes raw{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};  // gate 1 2, up 3 4
  OrderedRows from{rows_of(raw, 2, 2), {2, 2, GateUpOrder::kUpThenGate, RowShuffle::kNone}, 3};
  from.padding = std::byte{9};
  Bytes out(12, std::byte{77});
  ordered_rows_into(from, 0, out);
  const Bytes want{std::byte{3}, std::byte{4}, std::byte{9}, std::byte{9},
                   std::byte{9}, std::byte{9}, std::byte{1}, std::byte{2},
                   std::byte{9}, std::byte{9}, std::byte{9}, std::byte{9}};
  EXPECT_EQ(out, want);
}

TEST(RowShuffle, MapsTheBytesOfEachHalfByItsOwnTable) {
  formats::CodeMap plus_one;
  for (unsigned code = 0; code < 256; ++code) {
    plus_one.of[code] = static_cast<std::uint8_t>(code + 1);
  }
  const Bytes raw{std::byte{1}, std::byte{255}};
  OrderedRows from{rows_of(raw, 2, 1), {2, 1, GateUpOrder::kGateThenUp, RowShuffle::kNone}, 1};
  from.byte_maps = {nullptr, &plus_one};
  Bytes out(2);
  ordered_rows_into(from, 0, out);
  EXPECT_EQ(out, (Bytes{std::byte{1}, std::byte{0}}));
}

TEST(RowShuffle, RefusesOrdersThatBlocksOrRowsDoNotFit) {
  memory::Ledger ledger(kMiB);
  GateUpTensors tensors{tensor_of(ledger, {1, 48, 4}, Bytes(192)), {}, {}};
  const auto code_of = [&](const RowOrder& from, const RowOrder& to) {
    const auto plan = plan_row_shuffle(tensors, from, to);
    return plan ? Code::kOther : plan.error().code;
  };
  EXPECT_EQ(code_of({1, 48}, {1, 48, {}, RowShuffle::kBy16}), Code::kOther);
  EXPECT_EQ(code_of({1, 48}, {1, 48, {}, RowShuffle::kBy32}), Code::kUnsupported);
  EXPECT_EQ(code_of({1, 48}, {2, 24}), Code::kUnsupported);
  EXPECT_EQ(code_of({2, 24}, {2, 24, GateUpOrder::kUpGateBy64}), Code::kUnsupported);
  EXPECT_EQ(code_of({1, 64}, {1, 64, {}, RowShuffle::kBy32}), Code::kInvalidSource);
}

}  // namespace
}  // namespace lode::layout
