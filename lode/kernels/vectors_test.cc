// pack_activation and the vector entries of every ISA, against the law and the law against numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "lode/kernels/test_panel_dot.h"

namespace lode::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class VectorsOfIsa : public testing::TestWithParam<std::size_t> {
 protected:
  const KernelTable& scalar() const { return available().front(); }
  const KernelTable& isa() const { return available()[GetParam()]; }
};

std::vector<std::byte> packed(const KernelTable& table, ActivationForm form,
                              const std::vector<float>& x) {
  std::vector<std::byte> bytes(activation_row_bytes(form, x.size()), std::byte{0xEE});
  table.pack_activation(form, x.data(), x.size(), bytes.data());
  return bytes;
}

constexpr ActivationForm kForms[] = {ActivationForm::kF32, ActivationForm::kI8Fp4,
                                     ActivationForm::kI8Plain};

TEST_P(VectorsOfIsa, PacksAsScalarDoes) {
  for (const ActivationForm form : kForms) {
    for (const std::size_t k : kLengths) {
      const std::vector<float> x = random_rows(1, k, static_cast<std::uint32_t>(k));
      ASSERT_EQ(packed(isa(), form, x), packed(scalar(), form, x)) << "k " << k;
    }
  }
}

TEST_P(VectorsOfIsa, PacksOddNumbersAsScalarDoes) {
  const float odd[] = {kInfinity, -kInfinity, kNan,     -kNan, 3.4e38F,
                       1e-45F,    -1e-38F,    1.5e-36F, 0.0F};
  for (const ActivationForm form : kForms) {
    for (const float value : odd) {
      std::vector<float> x(77, 0.0F);
      x[40] = value;
      ASSERT_EQ(packed(isa(), form, x), packed(scalar(), form, x)) << value;
      std::vector<float> all(96, value);
      ASSERT_EQ(packed(isa(), form, all), packed(scalar(), form, all)) << value;
    }
  }
}

TEST_P(VectorsOfIsa, PacksTiesToEvenAsScalarDoes) {
  std::vector<float> x(64);
  for (std::size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(i) - 31.5F;
  x[0] = 127.0F;
  x[63] = -127.0F;
  for (const ActivationForm form : kForms)
    ASSERT_EQ(packed(isa(), form, x), packed(scalar(), form, x));
}

TEST_P(VectorsOfIsa, EqualsScalarInDotsAndSums) {
  for (std::size_t n = 0; n <= 160; ++n) {
    const std::vector<float> a = random_rows(1, n + 1, 21), b = random_rows(1, n + 1, 22);
    std::vector<std::uint16_t> half(n);
    scalar().to_f16(b.data(), n, half.data());
    EXPECT_TRUE(same_number(isa().dot(a.data(), b.data(), n), scalar().dot(a.data(), b.data(), n)));
    EXPECT_TRUE(same_number(isa().dot_f16(a.data(), half.data(), n),
                            scalar().dot_f16(a.data(), half.data(), n)));
    std::vector<float> got = b, want = b;
    isa().add_scaled(1.37F, a.data(), n, got.data());
    scalar().add_scaled(1.37F, a.data(), n, want.data());
    EXPECT_EQ(first_difference(want, got), -1) << n;
    isa().add_scaled_f16(-0.3F, half.data(), n, got.data());
    scalar().add_scaled_f16(-0.3F, half.data(), n, want.data());
    EXPECT_EQ(first_difference(want, got), -1) << n;
  }
}

TEST_P(VectorsOfIsa, EqualsScalarForEveryHalf) {
  std::vector<std::uint16_t> codes(1u << 16);
  std::iota(codes.begin(), codes.end(), std::uint16_t{0});
  std::vector<float> got(codes.size(), 0.0F), want = got;
  isa().add_scaled_f16(1.0F, codes.data(), codes.size(), got.data());
  scalar().add_scaled_f16(1.0F, codes.data(), codes.size(), want.data());
  EXPECT_EQ(first_difference(want, got), -1);
}

// Around each half: itself, the middle to the next, and a step to either side of it.
TEST_P(VectorsOfIsa, RoundsToHalvesAsScalarDoes) {
  std::vector<float> x;
  for (std::uint32_t bits = 0x32000000u; bits < 0x47A00000u; bits += 0x1000u) {
    for (const std::uint32_t near : {bits - 1, bits, bits + 1, bits | 0x80000000u}) {
      x.push_back(__builtin_bit_cast(float, near));
    }
  }
  for (const float odd : {kInfinity, -kInfinity, 0.0F, -0.0F, 1e-45F, 3e38F}) x.push_back(odd);
  std::vector<std::uint16_t> got(x.size()), want(x.size());
  isa().to_f16(x.data(), x.size(), got.data());
  scalar().to_f16(x.data(), x.size(), want.data());
  EXPECT_EQ(got, want);
}

TEST_P(VectorsOfIsa, MakesANanOfANanInHalf) {
  std::vector<float> x(33, kNan);
  std::vector<std::uint16_t> half(33);
  isa().to_f16(x.data(), 33, half.data());
  for (const std::uint16_t code : half) EXPECT_GT(code & 0x7FFFu, 0x7C00u);
}

TEST_P(VectorsOfIsa, EqualsScalarInRmsNorm) {
  for (const std::size_t n : kLengths) {
    const std::vector<float> x = random_rows(1, n, 31), weight = random_rows(1, n, 32);
    std::vector<float> got(n), want(n);
    isa().rms_norm(x.data(), weight.data(), 1e-6F, n, got.data());
    scalar().rms_norm(x.data(), weight.data(), 1e-6F, n, want.data());
    EXPECT_EQ(first_difference(want, got), -1) << n;
  }
}

TEST_P(VectorsOfIsa, MayNormaliseInPlace) {
  const std::vector<float> x = random_rows(1, 100, 33), weight = random_rows(1, 100, 34);
  std::vector<float> want(100), got = x;
  scalar().rms_norm(x.data(), weight.data(), 1e-5F, 100, want.data());
  isa().rms_norm(got.data(), weight.data(), 1e-5F, 100, got.data());
  EXPECT_EQ(first_difference(want, got), -1);
}

std::vector<std::size_t> isas() {
  std::vector<std::size_t> all(available().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, VectorsOfIsa, testing::ValuesIn(isas()), [](const auto& tested) {
  return std::string(available()[tested.param].isa);
});

TEST(PackActivation, WritesCodesScalesAndCorrectionsWhereTheHeaderSays) {
  std::vector<float> x(40, 0.0F);
  for (std::size_t i = 0; i < 8; ++i) x[i] = static_cast<float>(i + 1);
  x[16] = -127.0F;  // so s = 1 in the first block
  x[33] = 254.0F;   // and 2 in the second
  const std::vector<std::byte> row = packed(available().front(), ActivationForm::kI8Fp4, x);
  const PackedBlock* got = packed_row(row.data());
  EXPECT_EQ(row.size(), 128u);  // 2 * (32 + 4 + 8), to a line
  EXPECT_THAT(std::vector<int>(got->codes, got->codes + 8),
              testing::ElementsAre(1, 3, 5, 7, 2, 4, 6, 8));
  EXPECT_EQ(got[0].codes[16], -127);
  EXPECT_EQ(got[1].codes[4], 127);  // k = 33 is second of its group: first of the high nibbles
  EXPECT_EQ(got[0].scale, 1.0F);
  EXPECT_EQ(got[1].scale, 2.0F);
  EXPECT_THAT(got[0].corrections, testing::ElementsAre(-12 * 36, 12 * 127));
  EXPECT_THAT(got[1].corrections, testing::ElementsAre(-12 * 127, 0));
  const std::vector<std::byte> plain = packed(available().front(), ActivationForm::kI8Plain, x);
  const PackedBlock* rising = packed_row(plain.data());
  EXPECT_THAT(std::vector<int>(rising->codes, rising->codes + 8),
              testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(rising->corrections[1], 128 * 127);
}

TEST(PackActivation, PoisonsABlockWithANanOrInfinityAndOnlyThat) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> x(64, 1.0F);
    x[5] = bad;
    const std::vector<std::byte> row = packed(available().front(), ActivationForm::kI8Plain, x);
    const PackedBlock* got = packed_row(row.data());
    EXPECT_TRUE(std::isnan(got[0].scale));
    EXPECT_EQ(got[0].codes[0], 0);
    EXPECT_EQ(got[1].codes[0], 127);
  }
}

TEST(PackActivation, TakesABlockTooSmallForANormalScaleAsZero) {
  const std::vector<float> x(32, 1e-37F);  // 1e-37 / 127 is subnormal
  const std::vector<std::byte> row = packed(available().front(), ActivationForm::kI8Plain, x);
  const PackedBlock* got = packed_row(row.data());
  EXPECT_EQ(got->scale, 0.0F);
  EXPECT_EQ(got->codes[7], 0);
}

TEST(Vectors, NormaliseByTheRootOfTheMeanSquare) {
  const float x[] = {3.0F, 4.0F}, weight[] = {1.0F, 10.0F};
  float out[2];
  available().front().rms_norm(x, weight, 0.0F, 2, out);
  EXPECT_FLOAT_EQ(out[0], 3.0F / std::sqrt(12.5F));
  EXPECT_FLOAT_EQ(out[1], 40.0F / std::sqrt(12.5F));
}

TEST(Vectors, DotSumsInSixteenChainsJoinedInHalves) {
  std::vector<float> a(32, 0.0F), b(32, 1.0F);
  a[0] = 0x1p24F;
  a[16] = 1.0F;  // same chain: lost
  a[8] = 1.0F;   // joins chain 0 first: lost
  a[1] = 1.0F;
  a[9] = 1.0F;  // joins chain 1: 2 in all, which is kept
  EXPECT_EQ(available().front().dot(a.data(), b.data(), 32), 0x1p24F + 2.0F);
}

}  // namespace
}  // namespace lode::kernels
