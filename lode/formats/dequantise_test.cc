#include "lode/formats/dequantise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "lode/formats/test_golden_reader.h"

namespace lode::formats {
namespace {

using golden::behind;

/// CRC32 (zlib) of the values with -0 turned to +0, as the golden digests are made.
class Digest {
 public:
  void add(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value == 0.0F ? 0.0F : value);
    for (int byte = 0; byte < 4; ++byte) {
      crc_ ^= (bits >> (8 * byte)) & 0xFFU;
      for (int bit = 0; bit < 8; ++bit) crc_ = (crc_ >> 1) ^ ((crc_ & 1U) != 0 ? 0xEDB88320U : 0U);
    }
  }
  std::uint32_t crc() const { return ~crc_; }

 private:
  std::uint32_t crc_ = 0xFFFFFFFFU;
};

std::vector<float> dequantise(const EncodedMatrix& matrix) {
  std::vector<float> out(matrix.rows * matrix.k);
  for (std::uint64_t row = 0; row < matrix.rows; ++row) {
    dequantise_row(matrix, row, std::span(out).subspan(row * matrix.k, matrix.k));
  }
  return out;
}

/// One golden folder, and how its linear layers are called there.
struct Dialect {
  std::string folder;
  Encoding encoding;
  std::string codes;
  std::string scales;
  std::string tensor_scale;  // empty: none
};

constexpr Encoding with_bf16_scales(Encoding encoding) {
  encoding.scale = Format::kBf16;
  return encoding;
}

float first_float(const std::vector<std::byte>& bytes) { return number_at(Format::kF32, bytes, 0); }

class Folder : public testing::TestWithParam<Dialect> {};

TEST_P(Folder, DequantisesEveryExpertToTheProducersDigest) {
  const Dialect& dialect = GetParam();
  const std::string digests = golden::read_file("quantised/" + dialect.folder + "/golden.json");
  const std::string file = golden::read_file("quantised/" + dialect.folder + "/model.safetensors");
  for (const std::string expert : {"0", "1"}) {
    for (const std::string role : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string linear = "model.layers.1.mlp.experts." + expert + "." + role;
      const auto want = behind(digests, {"matrices_in_golden_safetensors", linear + ".weight"});
      const auto shape = golden::integer_list(behind(want, {"shape"}));
      const auto codes = golden::tensor_bytes(file, linear + dialect.codes);
      const auto scales = golden::tensor_bytes(file, linear + dialect.scales);
      EncodedMatrix matrix{dialect.encoding, shape[0], shape[1], codes, scales};
      if (!dialect.tensor_scale.empty()) {
        matrix.tensor_scale =
            first_float(golden::tensor_bytes(file, linear + dialect.tensor_scale));
      }
      ASSERT_TRUE(check_matrix(matrix).has_value()) << linear;
      Digest digest;
      for (const float value : dequantise(matrix)) digest.add(value);
      EXPECT_EQ(digest.crc(), golden::integer(behind(want, {"float32", "crc32"}))) << linear;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Folder,
    testing::Values(
        Dialect{"modelopt_nvfp4", kNvfp4, ".weight", ".weight_scale", ".weight_scale_2"},
        Dialect{"ct_nvfp4", kNvfp4Divisor, ".weight_packed", ".weight_scale",
                ".weight_global_scale"},
        Dialect{"block_fp8", kFp8Block128, ".weight", ".weight_scale_inv", ""},
        Dialect{"ct_fp8_block", with_bf16_scales(kFp8Block128), ".weight", ".weight_scale", ""},
        Dialect{"ct_fp8_channel", with_bf16_scales(kFp8Channel), ".weight", ".weight_scale", ""},
        Dialect{"ct_fp8_tensor", with_bf16_scales(kFp8Tensor), ".weight", ".weight_scale", ""},
        Dialect{"fbgemm_fp8_row", kFp8Channel, ".weight", ".weight_scale", ""},
        Dialect{"modelopt_fp8", kFp8Tensor, ".weight", ".weight_scale", ""}),
    [](const auto& parameter) { return parameter.param.folder; });

// gpt-oss digests are over [E, in, out], its blocks over [E, out, in].
TEST(Dequantise, GptOssBlocksHaveTheirDigestWhenTransposed) {
  const std::string digests = golden::read_file("quantised/gptoss_mxfp4/golden.json");
  const std::string file = golden::read_file("quantised/gptoss_mxfp4/model.safetensors");
  for (const std::string role : {"gate_up_proj", "down_proj"}) {
    const std::string stack = "model.layers.1.mlp.experts." + role;
    const auto want = behind(digests, {"matrices_in_golden_safetensors", stack});
    const auto shape = golden::integer_list(behind(want, {"shape"}));
    const auto codes = golden::tensor_bytes(file, stack + "_blocks");
    const auto scales = golden::tensor_bytes(file, stack + "_scales");
    const std::uint64_t in = shape[1];
    const std::uint64_t out = shape[2];
    const EncodedMatrix matrix{kMxfp4, shape[0] * out, in, codes, scales};
    ASSERT_TRUE(check_matrix(matrix).has_value());
    const auto values = dequantise(matrix);
    Digest digest;
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      const std::uint64_t expert = i / (in * out);
      const std::uint64_t row = expert * out + i % out;
      digest.add(values[row * in + (i / out) % in]);
    }
    EXPECT_EQ(digest.crc(), golden::integer(behind(want, {"float32", "crc32"}))) << role;
  }
}

// checkpoints_models 5.2, as bytes.
TEST(Dequantise, TheMxfp4BlockOfTheSpecificationHasItsValues) {
  const unsigned char bytes[] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE,
                                 0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF};
  const unsigned char scale[] = {126};
  const float want[] = {0,     .25F,  .5F,   .75F,  1,     1.5F,  2,  3,   //
                        0,     -.25F, -.5F,  -.75F, -1,    -1.5F, -2, -3,  //
                        .25F,  0,     .75F,  .5F,   1.5F,  1,     3,  2,   //
                        -.25F, 0,     -.75F, -.5F,  -1.5F, -1,    -3, -2};
  const EncodedMatrix matrix{kMxfp4, 1, 32, std::as_bytes(std::span(bytes)),
                             std::as_bytes(std::span(scale))};
  const auto got = dequantise(matrix);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << i;
}

struct Small {
  std::vector<std::byte> codes = std::vector<std::byte>(16);
  std::vector<std::byte> scales = std::vector<std::byte>(2);
  EncodedMatrix matrix{kNvfp4, 1, 32, codes, scales, 1.0F};
};

TEST(CheckMatrix, AcceptsTheRightSizes) {
  const Small small;
  EXPECT_TRUE(check_matrix(small.matrix).has_value());
}

TEST(CheckMatrix, RefusesCodesOneByteShort) {
  Small small;
  small.matrix.codes = std::span(small.codes).first(15);
  EXPECT_EQ(check_matrix(small.matrix).error().code, Code::kInvalidSource);
}

TEST(CheckMatrix, RefusesAScaleTooMany) {
  Small small;
  small.scales.resize(3);
  small.matrix.scales = small.scales;
  EXPECT_EQ(check_matrix(small.matrix).error().code, Code::kInvalidSource);
}

TEST(CheckMatrix, RefusesTensorScalesThatMeanNothing) {
  for (const float bad : {0.0F, -1.0F, HUGE_VALF, NAN}) {
    Small small;
    small.matrix.tensor_scale = bad;
    EXPECT_EQ(check_matrix(small.matrix).error().code, Code::kInvalidSource) << bad;
  }
}

TEST(CheckMatrix, RefusesOddRowsOfHalfBytes) {
  Small small;
  small.matrix.k = 31;
  EXPECT_EQ(check_matrix(small.matrix).error().code, Code::kUnsupported);
}

TEST(CheckMatrix, RefusesFormatsWithoutADecoder) {
  Small small;
  small.matrix.encoding.element = Format::kE4m3Fnuz;
  EXPECT_EQ(check_matrix(small.matrix).error().code, Code::kUnsupported);
}

TEST(CheckMatrix, RefusesShapesWhoseProductWraps) {
  Small small;
  small.matrix.rows = std::uint64_t{1} << 63;
  small.matrix.k = 4;
  small.matrix.codes = {};
  EXPECT_EQ(check_matrix(small.matrix).error().code, Code::kInvalidSource);
}

TEST(Dequantise, AZeroScaleMakesAZeroBlock) {
  Small small;
  small.codes.assign(16, std::byte{0x77});
  for (const float value : dequantise(small.matrix)) EXPECT_EQ(value, 0.0F);
}

}  // namespace
}  // namespace lode::formats
