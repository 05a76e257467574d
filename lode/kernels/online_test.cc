// Codes of online quantisation: every ISA against the law, for every finite number of 16 bits.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "lode/kernels/kernel_table.h"

namespace lode::kernels {
namespace {

using formats::Format;
using formats::pieces::Codes;
using formats::pieces::Floats;
using formats::pieces::kPiece;
using formats::pieces::Op;
using formats::pieces::Raw;

Codes codes_of(formats::pieces::EncodeFn encode, Op op, Format from, const Raw& raw,
               const Floats& factors) {
  Codes codes{};
  encode(op, from, raw.data(), factors.data(), codes.data());
  if (op == Op::kE2m1Product) std::fill(codes.begin() + kPiece / 2, codes.end(), std::uint8_t{0});
  return codes;
}

/// `round`: which factors; every number meets another of them in each round.
void expect_the_law(const KernelTable& table, Op op, Format from, int round) {
  std::mt19937 random(static_cast<std::uint32_t>(round));
  const std::uint16_t infinity = formats::pieces::infinity_bits(from);
  Raw raw;
  Floats factors;
  for (std::uint32_t first = 0; first < infinity; first += kPiece / 2) {
    for (std::size_t i = 0; i < kPiece; ++i) {
      const auto magnitude = (first + i / 2) % infinity;
      raw[i] = static_cast<std::uint16_t>(magnitude | (i % 2 == 1 ? 0x8000U : 0U));
      const int exponent = static_cast<int>(random() % 40) - 20;
      const float near_one = 1.0F + static_cast<float>(random() % 1024) / 1024.0F;
      factors[i] = round == 0 ? 1.0F : std::ldexp(near_one, exponent);
    }
    // Overflow, 0 * infinity and scales of 0 too.
    if (round == 1) factors[random() % kPiece] = HUGE_VALF;
    if (round == 2) factors[random() % kPiece] = op == Op::kE4m3Quotient ? 1.0F : 0.0F;
    ASSERT_EQ(codes_of(table.encode_piece, op, from, raw, factors),
              codes_of(formats::pieces::encode, op, from, raw, factors))
        << table.isa << " from " << first;
  }
}

TEST(OnlineOfIsa, GivesTheLawsCodes) {
  for (const KernelTable& table : available()) {
    for (const Op op : {Op::kE4m3Product, Op::kE4m3Quotient, Op::kE2m1Product}) {
      for (const Format from : {Format::kBf16, Format::kF16}) {
        for (int round = 0; round < 4; ++round) {
          // 0 * infinity is a NaN, which E2M1 cannot say.
          if (op == Op::kE2m1Product && round == 1) continue;
          expect_the_law(table, op, from, round);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lode::kernels
