// The rows of the SM90 kernels: the law against the tables of the specification, and every ISA
// against the law. That the law is the layout's function, layout/sm90_mixed_test.cc says.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "lode/kernels/kernel_table.h"
#include "lode/kernels/test_guarded_bytes.h"

namespace lode::kernels {
namespace {

constexpr MixedOrder kOrders[]{MixedOrder::kNibblePairs, MixedOrder::kBf16Places};

std::vector<std::byte> made_by(const KernelTable& isa, MixedRows rows) {
  std::vector<std::byte> out(2 * rows.out_bytes, std::byte{0xEE});
  rows.upper_out = out.data();
  rows.lower_out = out.data() + rows.out_bytes;
  isa.mix_rows(rows);
  return out;
}

// Row x0 of the table: bits 7 to 0 go to 31 24 23 22 15 8 7 6 of the first word; x3: 30 27 26 29 14
// 11 10 13.
TEST(MixRows, PutSingleBitsWhereTheTableSays) {
  constexpr std::array<int, 8> kX0{31, 24, 23, 22, 15, 8, 7, 6};
  constexpr std::array<int, 8> kX3{30, 27, 26, 29, 14, 11, 10, 13};
  for (std::size_t i = 0; i < 8; ++i) {
    std::array<std::byte, 32> upper{};
    std::array<std::byte, 32> lower{};
    upper[0] = static_cast<std::byte>(0x80U >> i);
    lower[4] = static_cast<std::byte>(0x80U >> i);
    MixedRows rows{MixedOrder::kBf16Places, upper.data(), lower.data(), 32, nullptr, nullptr, 32};
    const auto out = made_by(available().front(), rows);
    std::uint32_t word = 0;
    for (std::size_t byte = 0; byte < 4; ++byte) {
      word |= std::to_integer<std::uint32_t>(out[byte]) << (8 * byte);
    }
    EXPECT_EQ(word, 1U << kX0[i] | 1U << kX3[i]) << "bit " << 7 - i;
  }
}

TEST(MixRows, GiveTheSameBytesOnEveryIsaAndReadNothingBeyondTheRows) {
  std::mt19937 random(19);
  for (const KernelTable& isa : available()) {
    for (int round = 0; round < 60; ++round) {
      const std::size_t source_bytes = 1 + random() % 200;
      GuardedBytes upper(source_bytes);
      GuardedBytes lower(source_bytes);
      for (std::size_t i = 0; i < source_bytes; ++i) {
        upper.data()[i] = static_cast<std::byte>(random());
        lower.data()[i] = static_cast<std::byte>(random());
      }
      MixedRows rows{kOrders[round % 2],
                     round % 7 == 3 ? nullptr : upper.data(),
                     round % 5 == 3 ? nullptr : lower.data(),
                     source_bytes,
                     nullptr,
                     nullptr,
                     kMixedBytes * (1 + random() % 8)};
      EXPECT_EQ(made_by(isa, rows), made_by(available().front(), rows)) << isa.isa;
    }
  }
}

}  // namespace
}  // namespace lode::kernels
