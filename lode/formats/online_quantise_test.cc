#include "lode/formats/online_quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lode/formats/bf16.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/f16.h"
#include "lode/formats/test_layout_case.h"

namespace lode::formats {
namespace {

using golden::Bytes;
using golden::differing;
using golden::LayoutCase;

struct Got {
  Bytes codes, scales;
  float matrix_scale = 1.0F;
  bool finite = false;

  friend bool operator==(const Got&, const Got&) = default;
};

struct Sizes {
  std::uint64_t rows, k;  // of the output; the source's unless it is padded
};

Got quantised(OnlineScheme scheme, const OnlineRows& rows, Sizes out, std::uint64_t strip = 0) {
  const Encoding& encoding = info(scheme).encoding;
  Got got;
  got.codes.resize(out.rows * row_bytes(encoding, out.k));
  const bool one = scheme == OnlineScheme::kTensorFp8;
  got.scales.resize(one ? 0 : scales_bytes(encoding, out.rows, out.k));
  const float amax = largest_magnitude(rows);
  got.matrix_scale = online_matrix_scale(scheme, amax);
  got.finite = true;
  if (strip == 0) strip = out.rows;
  const std::uint64_t strips = (out.rows + strip - 1) / strip;
  for (std::uint64_t i = 0; i < strips; ++i) {
    OnlineRows part = rows;
    part.first += i * strip * rows.step_bytes;
    part.rows = rows.rows > i * strip ? std::min(strip, rows.rows - i * strip) : 0;
    const std::uint64_t code_bytes = got.codes.size() * strip / out.rows;
    const std::uint64_t scale_bytes = got.scales.size() / strips;
    const OnlineOutput to{strip, out.k, std::span(got.codes).subspan(i * code_bytes, code_bytes),
                          std::span(got.scales).subspan(i * scale_bytes, scale_bytes)};
    got.finite = quantise_online(scheme, part, amax, to) && got.finite;
  }
  return got;
}

OnlineRows rows_over(const Bytes& bytes, std::uint64_t rows, std::uint64_t k, Format format) {
  return {bytes.data(), k * 2, rows, k, format};
}

/// Every expert of tensor `name` of a case by itself, codes and scales one behind the other.
Got experts(const LayoutCase& golden, OnlineScheme scheme, const std::string& name,
            std::uint64_t num_experts, std::uint64_t rows, Format format) {
  const Bytes source = golden.bytes("in." + name);
  const std::uint64_t k = source.size() / 2 / rows / num_experts;
  Got all;
  for (std::uint64_t expert = 0; expert < num_experts; ++expert) {
    OnlineRows one = rows_over(source, rows, k, format);
    one.first += expert * rows * k * 2;
    const Got got = quantised(scheme, one, {rows, k});
    EXPECT_TRUE(got.finite);
    all.codes.insert(all.codes.end(), got.codes.begin(), got.codes.end());
    all.scales.insert(all.scales.end(), got.scales.begin(), got.scales.end());
    if (scheme != OnlineScheme::kTensorFp8) continue;
    const auto scale = std::as_bytes(std::span(&got.matrix_scale, 1));
    all.scales.insert(all.scales.end(), scale.begin(), scale.end());
  }
  return all;
}

void expect_layer(const std::string& name, OnlineScheme scheme, std::uint64_t num_experts,
                  Format format) {
  const LayoutCase golden(name);
  const Got w13 = experts(golden, scheme, "w13", num_experts, 64, format);
  const Got w2 = experts(golden, scheme, "w2", num_experts, 48, format);
  EXPECT_EQ(differing(w13.codes, golden.bytes("out.w13")), 0U) << name;
  EXPECT_EQ(differing(w2.codes, golden.bytes("out.w2")), 0U) << name;
  EXPECT_EQ(differing(w13.scales, golden.bytes("out.w13_scale")), 0U) << name;
  EXPECT_EQ(differing(w2.scales, golden.bytes("out.w2_scale")), 0U) << name;
}

TEST(QuantiseOnline, GivesTheEnginesBytesForTensorsRowsAndInt8) {
  expect_layer("online_fp8_tensor_bf16", OnlineScheme::kTensorFp8, 3, Format::kBf16);
  expect_layer("online_fp8_tensor_fp16", OnlineScheme::kTensorFp8, 3, Format::kF16);
  expect_layer("online_fp8_channel_bf16", OnlineScheme::kRowFp8, 3, Format::kBf16);
  expect_layer("online_fp8_channel_fp16", OnlineScheme::kRowFp8, 3, Format::kF16);
  expect_layer("online_int8", OnlineScheme::kRowInt8, 2, Format::kBf16);
}

TEST(QuantiseOnline, GivesTheEnginesBytesForMxfp4) {
  const LayoutCase golden("online_mxfp4");
  const Got got = experts(golden, OnlineScheme::kMx4, "w", 2, 24, Format::kBf16);
  EXPECT_EQ(differing(got.codes, golden.bytes("out.w")), 0U);
  EXPECT_EQ(differing(got.scales, golden.bytes("out.scale")), 0U);
}

TEST(QuantiseOnline, GivesTheEnginesBytesForMxfp8) {
  const LayoutCase golden("online_mxfp8_torch");
  const Got got = experts(golden, OnlineScheme::kMx8, "x", 1, 24, Format::kBf16);
  EXPECT_EQ(differing(got.codes, golden.bytes("out.q")), 0U);
  EXPECT_EQ(differing(got.scales, golden.bytes("out.scale")), 0U);
}

// What lies behind 100 of 128 rows and 120 of 128 columns in the golden input is garbage; engines
// zero it before.
TEST(QuantiseOnline, PadsTheHalvesOfBlocksWithZeros) {
  const LayoutCase golden("online_fp8_block");
  const Bytes w13 = golden.bytes("in.w13");
  Bytes codes, scales;
  for (std::uint64_t half = 0; half < 2; ++half) {
    const OnlineRows rows{w13.data() + half * 128 * 256, 256, 100, 120, Format::kBf16};
    const Got got = quantised(OnlineScheme::kBlockFp8, rows, {128, 128});
    codes.insert(codes.end(), got.codes.begin(), got.codes.end());
    scales.insert(scales.end(), got.scales.begin(), got.scales.end());
  }
  EXPECT_EQ(differing(codes, golden.bytes("out.w13")), 0U);
  EXPECT_EQ(differing(scales, golden.bytes("out.w13_scale")), 0U);
  const Bytes w2 = golden.bytes("in.w2");
  const OnlineRows rows{w2.data(), 256, 120, 100, Format::kBf16};
  const Got got = quantised(OnlineScheme::kBlockFp8, rows, {128, 128});
  EXPECT_EQ(differing(got.codes, golden.bytes("out.w2")), 0U);
  EXPECT_EQ(differing(got.scales, golden.bytes("out.w2_scale")), 0U);
}

/// A matrix of sines of rising size.
Bytes matrix(std::uint64_t rows, std::uint64_t k, Format format) {
  Bytes bytes(rows * k * 2);
  for (std::uint64_t i = 0; i < rows * k; ++i) {
    const float value = std::sin(static_cast<float>(i)) * static_cast<float>(1 + i % 977);
    const std::uint16_t code = format == Format::kBf16 ? encode_bf16(value) : encode_f16(value);
    std::memcpy(bytes.data() + i * 2, &code, 2);
  }
  return bytes;
}

TEST(QuantiseOnline, StripsOfRowsGiveTheWhole) {
  const Bytes bytes = matrix(256, 96, Format::kF16);
  const OnlineRows rows = rows_over(bytes, 256, 96, Format::kF16);
  for (const OnlineSchemeInfo& scheme : online_scheme_table()) {
    const std::uint64_t strip = scheme.encoding.block_rows == 128 ? 128 : 16;
    const Got whole = quantised(scheme.scheme, rows, {256, 96});
    EXPECT_TRUE(whole.finite);
    EXPECT_EQ(quantised(scheme.scheme, rows, {256, 96}, strip), whole) << scheme.name;
  }
}

TEST(QuantiseOnline, PartsOfRowsUnderKnownScalesGiveTheWhole) {
  constexpr std::uint64_t kRows = 8, kWhole = 224, kFirst = 64, kPart = 96;
  const Bytes bytes = matrix(kRows, kWhole, Format::kBf16);
  const OnlineRows rows = rows_over(bytes, kRows, kWhole, Format::kBf16);
  for (const OnlineScheme scheme : {OnlineScheme::kRowFp8, OnlineScheme::kRowInt8}) {
    Got whole = quantised(scheme, rows, {kRows, kWhole});
    OnlineRows part = rows;
    part.first += kFirst * 2;
    part.k = kPart;
    Bytes codes(kRows * kPart);
    encode_scaled_rows(scheme, part, {kRows, kPart, codes, whole.scales});
    for (std::uint64_t row = 0; row < kRows; ++row) {
      const auto wanted = std::span(whole.codes).subspan(row * kWhole + kFirst, kPart);
      EXPECT_TRUE(std::ranges::equal(wanted, std::span(codes).subspan(row * kPart, kPart)))
          << info(scheme).name << " row " << row;
    }
  }
}

TEST(QuantiseOnline, RowsFarApartGiveWhatRowsSideBySideGive) {
  const Bytes bytes = matrix(8, 96, Format::kBf16);
  const OnlineRows apart{bytes.data() + 32, 192, 8, 64, Format::kBf16};
  Bytes packed;
  for (std::uint64_t row = 0; row < 8; ++row) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(row * 192 + 32);
    packed.insert(packed.end(), begin, begin + 128);
  }
  const OnlineRows together = rows_over(packed, 8, 64, Format::kBf16);
  for (const OnlineSchemeInfo& scheme : online_scheme_table()) {
    EXPECT_EQ(quantised(scheme.scheme, apart, {8, 64}), quantised(scheme.scheme, together, {8, 64}))
        << scheme.name;
  }
}

// The law reads it back: half a step of E4M3 below the largest is 16/448, of E2M1 1/6; a scale that
// is a power of two may be twice too large, one of E4M3 is 1/16 off.
TEST(QuantiseOnline, IsReadBackByTheLawWithinAStep) {
  const Bytes bytes = matrix(128, 64, Format::kBf16);
  const OnlineRows rows = rows_over(bytes, 128, 64, Format::kBf16);
  const std::vector<float> values = golden::as_floats(bytes, Format::kBf16);
  const float amax = largest_magnitude(rows);
  for (const OnlineSchemeInfo& scheme : online_scheme_table()) {
    Got got = quantised(scheme.scheme, rows, {128, 64});
    if (scheme.scheme == OnlineScheme::kTensorFp8) {
      got.scales.resize(4);
      std::memcpy(got.scales.data(), &got.matrix_scale, 4);
    }
    const EncodedMatrix matrix{scheme.encoding, 128, 64, got.codes, got.scales, got.matrix_scale};
    ASSERT_TRUE(check_matrix(matrix).has_value()) << scheme.name;
    const bool fp4 = scheme.encoding.element == Format::kE2m1;
    const float bound = amax * (fp4 ? 2.0F / 6.0F : 32.0F / 448.0F) * 1.07F;
    std::vector<float> row(64);
    for (std::uint64_t r = 0; r < 128; ++r) {
      dequantise_row(matrix, r, row);
      for (std::uint64_t i = 0; i < 64; ++i) {
        ASSERT_NEAR(row[i], values[r * 64 + i], bound) << scheme.name;
      }
    }
  }
}

TEST(QuantiseOnline, NvfpsLargestBlockScaleIsThatOfItsLargestNumber) {
  const Bytes bytes = matrix(64, 64, Format::kBf16);
  const OnlineRows rows = rows_over(bytes, 64, 64, Format::kBf16);
  const Got got = quantised(OnlineScheme::kNv4, rows, {64, 64});
  float largest = 0.0F;
  for (const float scale : golden::as_floats(got.scales, Format::kE4m3)) {
    largest = std::max(largest, scale);
  }
  EXPECT_EQ(online_largest_block_scale(largest_magnitude(rows)), largest);
  EXPECT_EQ(largest, 448.0F);  // gs * amax / 6
}

TEST(QuantiseOnline, ZerosHaveScalesThatReadBackAsZeros) {
  const Bytes zeros(128 * 64 * 2);
  const OnlineRows rows = rows_over(zeros, 128, 64, Format::kF16);
  for (const OnlineSchemeInfo& scheme : online_scheme_table()) {
    const Got got = quantised(scheme.scheme, rows, {128, 64});
    EXPECT_TRUE(got.finite);
    // weight_layouts 3.1: a tensor of zeros has the scale 0 and codes of 448.
    const bool tensor = scheme.scheme == OnlineScheme::kTensorFp8;
    EXPECT_EQ(got.codes[77], std::byte{tensor ? std::uint8_t{0x7E} : std::uint8_t{0}});
    if (tensor) {
      EXPECT_EQ(got.matrix_scale, 0.0F);
    }
  }
}

TEST(QuantiseOnline, SaysWhereANumberIsNotFinite) {
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    Bytes bytes = matrix(128, 64, Format::kBf16);
    const std::uint16_t code = encode_bf16(bad);
    std::memcpy(bytes.data() + 4000, &code, 2);
    const OnlineRows rows = rows_over(bytes, 128, 64, Format::kBf16);
    EXPECT_TRUE(std::isinf(largest_magnitude(rows)));
    for (const OnlineSchemeInfo& scheme : online_scheme_table()) {
      EXPECT_FALSE(quantised(scheme.scheme, rows, {128, 64}).finite) << scheme.name;
    }
  }
}

TEST(OnlineScheme, EveryNameLeadsBackToItsRow) {
  for (const OnlineSchemeInfo& row : online_scheme_table()) {
    EXPECT_EQ(online_scheme_by_name(row.name), row.scheme);
  }
  EXPECT_FALSE(online_scheme_by_name("fp5").has_value());
}

}  // namespace
}  // namespace lode::formats
