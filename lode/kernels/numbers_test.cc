// map_codes, widen and quantise_i8: the laws against the standards, every ISA against the laws.
#include <gtest/gtest.h>

#include <numeric>

#include "lode/kernels/test_guarded_bytes.h"
#include "lode/kernels/test_panel_dot.h"

namespace lode::kernels {
namespace {

using formats::Format;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NumbersOfIsa : public testing::TestWithParam<std::size_t> {
 protected:
  const KernelTable& scalar() const { return available().front(); }
  const KernelTable& isa() const { return available()[GetParam()]; }
};

// Every code of a format of 8 or 16 bits.
std::vector<std::byte> all_codes(std::size_t bytes) {
  const std::size_t count = std::size_t{1} << 8 * bytes;
  std::vector<std::byte> codes(count * bytes);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(codes.data() + i * bytes, &i, bytes);
  return codes;
}

double value_by_standard(Format format, std::uint32_t code) {
  switch (format) {
    case Format::kF16:
      return code_value_by_standard(PanelKind::kF16, code);
    case Format::kBf16:
      return code_value_by_standard(PanelKind::kBf16, code);
    case Format::kE4m3:
      return code_value_by_standard(PanelKind::kE4m3, code);
    default:
      return minifloat_value(code, 2, 5, 15);  // E5M2
  }
}

// Codes whose exponent is all ones are infinities and NaNs, but in E4M3.
bool is_ordinary(Format format, std::uint32_t code) {
  switch (format) {
    case Format::kF16:
      return (code & 0x7C00u) != 0x7C00u;
    case Format::kBf16:
      return (code & 0x7F80u) != 0x7F80u;
    case Format::kE4m3:
      return (code & 0x7Fu) != 0x7Fu;
    default:
      return (code & 0x7Cu) != 0x7Cu;
  }
}

TEST_P(NumbersOfIsa, WidensEveryCodeToItsValue) {
  for (const Format format : {Format::kF16, Format::kBf16, Format::kE4m3, Format::kE5m2}) {
    const std::size_t bytes = formats::info(format).bits / 8;
    const std::vector<std::byte> codes = all_codes(bytes);
    std::vector<float> got(codes.size() / bytes), law(got.size());
    isa().widen(format, codes.data(), bytes, got.size(), got.data());
    scalar().widen(format, codes.data(), bytes, law.size(), law.data());
    ASSERT_EQ(first_difference(law, got), -1);
    for (std::uint32_t code = 0; code < got.size(); ++code) {
      if (!is_ordinary(format, code)) {
        EXPECT_FALSE(std::isfinite(got[code])) << code;
        continue;
      }
      ASSERT_EQ(static_cast<double>(got[code]), value_by_standard(format, code)) << code;
    }
  }
}

TEST_P(NumbersOfIsa, WidensAnyCountFromAnyByteAndReadsNoMore) {
  for (const Format format :
       {Format::kF32, Format::kF16, Format::kBf16, Format::kE4m3, Format::kE5m2}) {
    const std::size_t bytes = formats::info(format).bits / 8;
    for (std::size_t n = 0; n < 70; ++n) {
      for (const std::size_t step : {bytes, 2 * bytes, 7 * bytes}) {
        GuardedBytes source(n == 0 ? 0 : (n - 1) * step + bytes);
        for (std::size_t i = 0; i < source.size(); ++i) {
          source.data()[i] = static_cast<std::byte>(0x21u + 29u * i % 0x50u);
        }
        std::vector<float> got(n + 1, -7.0F), want(n + 1, -7.0F);
        isa().widen(format, source.data(), step, n, got.data());
        scalar().widen(format, source.data(), step, n, want.data());
        ASSERT_EQ(first_difference(want, got), -1) << "n " << n << " step " << step;
      }
    }
  }
}

TEST_P(NumbersOfIsa, LooksAnyCountOfBytesUpApartAndInPlaceAndTouchesNoMore) {
  formats::CodeMap map;
  for (std::size_t code = 0; code < 256; ++code) {
    map.of[code] = static_cast<std::uint8_t>(code * 167 + 13);  // each once
  }
  for (std::size_t n = 0; n < 400; ++n) {
    GuardedBytes codes(n), out(n);
    for (std::size_t i = 0; i < n; ++i) codes.data()[i] = static_cast<std::byte>(i * 59 + n);
    isa().map_codes(map, codes.data(), n, out.data());
    isa().map_codes(map, codes.data(), n, codes.data());
    for (std::size_t i = 0; i < n; ++i) {
      const auto want = static_cast<std::byte>((i * 59 + n) % 256 * 167 + 13);
      ASSERT_EQ(out.data()[i], want) << "n " << n << " i " << i;
      ASSERT_EQ(codes.data()[i], want) << "n " << n << " i " << i;
    }
  }
}

struct Quantised {
  std::vector<std::int8_t> codes = std::vector<std::int8_t>(kSuperBlockK, 99);
  float scale = 0.0F;
};
Quantised quantised(const KernelTable& table, const std::vector<float>& x, float factor = 1.0F) {
  Quantised made;
  made.scale = table.quantise_i8(x.data(), factor, x.size(), made.codes.data());
  return made;
}

TEST_P(NumbersOfIsa, QuantisesAsScalarDoes) {
  std::mt19937 random(5);
  for (std::size_t n = 1; n <= kSuperBlockK; ++n) {
    std::vector<float> x = random_rows(1, n, static_cast<std::uint32_t>(n));
    // Ties: odd multiples of half a step.
    if (n > 3) x = std::vector<float>(n, 0.5F + static_cast<float>(random() % 99)), x[n / 2] = 127;
    const Quantised got = quantised(isa(), x), want = quantised(scalar(), x);
    ASSERT_EQ(got.scale, want.scale) << n;
    ASSERT_EQ(got.codes, want.codes) << n;
  }
}

TEST_P(NumbersOfIsa, QuantisesProductsAsScalarDoes) {
  for (const float factor : {0.0F, -3.0F, 0.37F, 1e-38F, 1e30F}) {
    const std::vector<float> x = random_rows(1, 101, 8);
    const Quantised got = quantised(isa(), x, factor), want = quantised(scalar(), x, factor);
    EXPECT_EQ(got.scale, want.scale) << factor;
    EXPECT_EQ(got.codes, want.codes) << factor;
  }
  for (const float factor : {kInfinity, -kInfinity, kNan, 3e38F}) {
    EXPECT_TRUE(std::isnan(quantised(isa(), {0.5F, 2.0F, 0.0F}, factor).scale)) << factor;
  }
}

TEST_P(NumbersOfIsa, QuantisesTinyNumbersAsScalarDoes) {
  for (const float tiny : {0.0F, -0.0F, 1e-45F, 63e-45F, 90e-45F, 4e-43F, 1e-38F, 1.5e-36F}) {
    const std::vector<float> x = {tiny, -tiny, tiny / 2, 0.0F};
    const Quantised got = quantised(isa(), x), want = quantised(scalar(), x);
    EXPECT_EQ(got.scale, want.scale) << tiny;
    EXPECT_EQ(got.codes, want.codes) << tiny;
  }
}

TEST_P(NumbersOfIsa, QuantisesNothingThatIsNotFinite) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (std::size_t at = 0; at < 100; at += 7) {
      std::vector<float> x(100, 1.0F);
      x[at] = bad;
      EXPECT_TRUE(std::isnan(quantised(isa(), x).scale)) << at;
    }
  }
}

std::vector<std::size_t> isas() {
  std::vector<std::size_t> all(available().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, NumbersOfIsa, testing::ValuesIn(isas()), [](const auto& tested) {
  return std::string(available()[tested.param].isa);
});

// Scale 254 / 127 = 2: 5 is 2.5 steps and 7 is 3.5, both go to even.
TEST(QuantiseLaw, RoundsToEvenInStepsOfTheLargestOver127) {
  const Quantised made = quantised(available().front(), {-254.0F, 5.0F, 7.0F, 0.0F});
  EXPECT_EQ(made.scale, 2.0F);
  std::vector<std::int8_t> want(kSuperBlockK, 0);
  want[0] = -127;
  want[1] = 2;
  want[2] = 4;
  EXPECT_EQ(made.codes, want);
}

// Of -508, 10 and 14, that is: the factor comes before the largest is looked for.
TEST(QuantiseLaw, MultipliesByTheFactorFirst) {
  const Quantised made = quantised(available().front(), {127.0F, -2.5F, -3.5F}, -4.0F);
  EXPECT_EQ(made.scale, 4.0F);
  std::vector<std::int8_t> want(kSuperBlockK, 0);
  want[0] = -127;
  want[1] = 2;
  want[2] = 4;
  EXPECT_EQ(made.codes, want);
}

}  // namespace
}  // namespace lode::kernels
