#include "lode/formats/online_pieces.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "lode/formats/bf16.h"
#include "lode/formats/f16.h"
#include "lode/formats/fp8_requantise.h"

namespace lode::formats::pieces {
namespace {

// Every 65,537th fp32 (a prime: all mantissas and exponents come by), and beside every middle
// between two codes.
template <class Check>
void for_many_floats(Check check) {
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 65537) {
    check(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (std::uint32_t code = 0; code < 0x7E; ++code) {
    for (const float scale : {1.0F, 0x1p-10F}) {
      const float middle = (decode_e4m3(static_cast<std::uint8_t>(code)) +
                            decode_e4m3(static_cast<std::uint8_t>(code + 1))) *
                           0.5F * scale;
      for (const float sign : {1.0F, -1.0F}) {
        check(sign * middle);
        check(sign * std::nextafter(middle, 0.0F));
        check(sign * std::nextafter(middle, 1e9F));
      }
    }
  }
}

TEST(OnlinePieces, CodesOfE4m3AreThoseOfTheLaw) {
  for_many_floats([](float value) {
    ASSERT_EQ(e4m3_code(value), std::uint32_t{encode_e4m3_clamped(value)}) << value;
  });
}

TEST(OnlinePieces, CodesOfE2m1AreThoseOfTheLaw) {
  for_many_floats([](float value) {
    if (std::isnan(value)) return;
    ASSERT_EQ(e2m1_code(value), std::uint32_t{encode_e2m1(value)}) << value;
  });
}

TEST(OnlinePieces, WidenEveryFiniteNumber) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto raw = static_cast<std::uint16_t>(code);
    if ((raw & 0x7FFFU) < infinity_bits(Format::kBf16)) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widen_bf16(raw)),
                std::bit_cast<std::uint32_t>(decode_bf16(raw)));
    }
    if ((raw & 0x7FFFU) < infinity_bits(Format::kF16)) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widen_f16(raw)),
                std::bit_cast<std::uint32_t>(decode_f16(raw)));
    }
  }
}

TEST(OnlinePieces, TheLargestIsThatOfTheMagnitudes) {
  Raw raw{};
  raw[5] = 0xBF80;
  raw[127] = 0x3F00;
  EXPECT_EQ(largest_bits<kPiece>(raw.data()), 0x3F80);
  EXPECT_EQ(largest_bits<16>(raw.data() + 112), 0x3F00);
}

}  // namespace
}  // namespace lode::formats::pieces
