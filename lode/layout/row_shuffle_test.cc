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

TEST(RowShuffle, PutsEveryRowWhereTheOrderSaysInPlaceAndOutOfPlace) {
  std::mt19937 random(7);
  parallel::ThreadPool pool(3);
  memory::Ledger ledger(64 * kMiB);
  for (const GateUpOrder to_order : kOrders) {
    for (const RowShuffle shuffle : kShuffles) {
      const std::uint64_t half_rows = 64 * (1 + random() % 2);
      const std::uint64_t row_bytes = random() % 3 == 0 ? 4096 + random() % 300 : 1 + random() % 90;
      const RowOrder from{2, half_rows, GateUpOrder::kGateUpInTurn, RowShuffle::kNone};
      const RowOrder to{2, half_rows, to_order, shuffle};
      const Bytes weight = random_bytes(2 * 2 * half_rows * row_bytes, random);
      const Bytes bias = random_bytes(2 * 2 * half_rows * 2, random);
      GateUpTensors tensors{tensor_of(ledger, {2, 2 * half_rows, row_bytes}, weight),
                            {},
                            tensor_of(ledger, {2, 2 * half_rows}, bias, formats::Format::kBf16)};
      const auto plan = plan_row_shuffle(tensors, from, to);
      ASSERT_TRUE(plan) << to_string(plan.error());
      tensors = run(*plan, std::move(tensors), shuffle == RowShuffle::kNone ? &pool : nullptr);

      Bytes want(weight.size());
      Bytes out(weight.size() / 2);
      for (std::uint64_t expert = 0; expert < 2; ++expert) {
        const auto raw = std::span(weight).subspan(expert * out.size(), out.size());
        const MatrixRows rows = rows_of(raw, 2, row_bytes, GateUpOrder::kGateUpInTurn);
        for (const std::uint32_t half : {0U, 1U}) {
          for (std::uint64_t row = 0; row < half_rows; ++row) {
            const HalfRow at{half, row};
            std::memcpy(want.data() + expert * out.size() + ordered_offset(to, row_bytes, at, 0),
                        rows.row(at).data(), row_bytes);
          }
        }
        ordered_rows_into({rows, to, row_bytes}, 0, out);
        EXPECT_TRUE(std::equal(out.begin(), out.end(),
                               want.begin() + static_cast<std::ptrdiff_t>(expert * out.size())));
      }
      EXPECT_EQ(bytes_of(tensors.weight), want) << name(to_order) << ' ' << name(shuffle);

      const auto back = plan_row_shuffle(tensors, to, from);
      ASSERT_TRUE(back);
      tensors = run(*back, std::move(tensors), &pool);
      EXPECT_EQ(bytes_of(tensors.weight), weight);
      EXPECT_EQ(bytes_of(tensors.bias), bias);
    }
  }
}

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
  std::array<std::uint8_t, 256> plus_one{};
  for (unsigned code = 0; code < 256; ++code) plus_one[code] = static_cast<std::uint8_t>(code + 1);
  const Bytes raw{std::byte{1}, std::byte{255}};
  OrderedRows from{rows_of(raw, 2, 1), {2, 1, GateUpOrder::kGateThenUp, RowShuffle::kNone}, 1};
  from.byte_maps = {nullptr, plus_one.data()};
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
