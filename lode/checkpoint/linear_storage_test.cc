#include "lode/checkpoint/linear_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

using formats::Format;
using ::testing::HasSubstr;
using testing_support::shard_of;
using testing_support::TempFolder;
using testing_support::TensorEntry;

std::uint64_t width_of(std::string_view dtype) {
  return formats::info(*formats::format_by_safetensors_name(dtype)).bits;
}

TensorEntry t(std::string name, std::string dtype, std::vector<std::uint64_t> dims) {
  std::uint64_t bits = width_of(dtype);
  for (const std::uint64_t dim : dims) bits *= dim;
  return {std::move(name), std::move(dtype), std::move(dims), bits / 8};
}

TensorIndex index_of(const std::vector<TensorEntry>& tensors) {
  const TempFolder folder;
  folder.write("model.safetensors", shard_of(tensors));
  Result<TensorIndex> index = open_index(folder.path());
  EXPECT_TRUE(index.has_value()) << to_string(index.error());
  return *std::move(index);
}

QuantConfig blocks_of(std::uint32_t rows, std::uint32_t columns) {
  QuantConfig quant;
  quant.dialect = Dialect::kFp8;
  quant.block = {rows, columns};
  quant.block_stated = true;
  return quant;
}

struct Expected {
  StorageKind kind;
  std::uint64_t experts, rows, columns;
  InAxis in_axis;
};

void expect_storage(const std::vector<TensorEntry>& tensors, const Expected& expected, bool fused,
                    const QuantConfig& quant = {}) {
  const TensorIndex index = index_of(tensors);
  const auto storage =
      fused ? detect_fused(index, "m.x", quant) : detect_linear(index, "m.x", quant);
  ASSERT_TRUE(storage.has_value()) << to_string(storage.error());
  EXPECT_EQ(storage->kind, expected.kind);
  EXPECT_EQ(storage->experts, expected.experts);
  EXPECT_EQ(storage->rows, expected.rows);
  EXPECT_EQ(storage->columns, expected.columns);
  EXPECT_EQ(storage->in_axis, expected.in_axis);
  EXPECT_EQ(storage->tensors().size(), tensors.size());
}

Error fault_of(const std::vector<TensorEntry>& tensors, bool fused = false,
               const QuantConfig& quant = {}) {
  const TensorIndex index = index_of(tensors);
  const auto storage =
      fused ? detect_fused(index, "m.x", quant) : detect_linear(index, "m.x", quant);
  EXPECT_FALSE(storage.has_value());
  return storage ? Error() : storage.error();
}

TEST(DetectLinear, Dense) {
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    expect_storage({t("m.x.weight", dtype, {6, 4}), t("m.x.bias", dtype, {6})},
                   {StorageKind::kDense, 0, 6, 4, InAxis::kLast}, false);
  }
}

TEST(DetectLinear, Mxfp4InItsNamings) {
  const Expected expected{StorageKind::kMxfp4, 0, 6, 64, InAxis::kLast};
  expect_storage({t("m.x.weight_packed", "U8", {6, 32}), t("m.x.weight_scale", "U8", {6, 2})},
                 expected, false);
  expect_storage({t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E8M0", {6, 2})},
                 expected, false);
  expect_storage({t("m.x.weight", "I8", {6, 32}), t("m.x.scale", "F8_E8M0", {6, 2})}, expected,
                 false);
  expect_storage({t("m.x.weight", "F4", {6, 64}), t("m.x.weight_scale", "F8_E8M0", {6, 2})},
                 expected, false);
}

TEST(DetectLinear, Nvfp4OfBothProducers) {
  expect_storage({t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4}),
                  t("m.x.weight_scale_2", "F32", {}), t("m.x.input_scale", "F32", {1})},
                 {StorageKind::kNvfp4ModelOpt, 0, 6, 64, InAxis::kLast}, false);
  expect_storage({t("m.x.weight_packed", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4}),
                  t("m.x.weight_global_scale", "F32", {1})},
                 {StorageKind::kNvfp4CompressedTensors, 0, 6, 64, InAxis::kLast}, false);
}

TEST(DetectLinear, TheGroupOfNvfp4IsReadOffTheScales) {
  const TensorIndex index =
      index_of({t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 2}),
                t("m.x.weight_scale_2", "F32", {})});
  const auto storage = detect_linear(index, "m.x", {});
  ASSERT_TRUE(storage.has_value());
  EXPECT_EQ(storage->encoding.block_k, 32U);
  EXPECT_EQ(storage->encoding.tensor_scale, formats::TensorScale::kMultiplier);
}

TEST(DetectLinear, Fp8ByTheShapeOfItsScale) {
  const auto expect_kind = [](const TensorEntry& scale, StorageKind kind,
                              const QuantConfig& quant = {}) {
    expect_storage({t("m.x.weight", "F8_E4M3", {256, 384}), scale},
                   {kind, 0, 256, 384, InAxis::kLast}, false, quant);
  };
  expect_kind(t("m.x.weight_scale", "F32", {}), StorageKind::kFp8Tensor);
  expect_kind(t("m.x.weight_scale", "BF16", {1}), StorageKind::kFp8Tensor);
  expect_kind(t("m.x.weight_scale", "F32", {256}), StorageKind::kFp8Channel);
  expect_kind(t("m.x.weight_scale", "BF16", {256, 1}), StorageKind::kFp8Channel);
  expect_kind(t("m.x.weight_scale", "U8", {256, 12}), StorageKind::kMxfp8);
  expect_kind(t("m.x.weight_scale_inv", "F32", {2, 3}), StorageKind::kFp8Block);
  expect_kind(t("m.x.weight_scale", "BF16", {2, 3}), StorageKind::kFp8Block);
  expect_kind(t("m.x.weight_scale", "F32", {2, 1, 3, 1}), StorageKind::kFp8Block);
  expect_kind(t("m.x.weight_scale_inv", "F8_E8M0", {2, 3}), StorageKind::kFp8Block);
  expect_kind(t("m.x.weight_scale_inv", "F32", {4, 3}), StorageKind::kFp8Block, blocks_of(64, 128));
}

TEST(DetectLinear, TheBlockComesFromTheSettingsNotFromTheRatioOfShapes) {
  // 144 columns with two columns of scales are 128 and 16.
  const TensorIndex index =
      index_of({t("m.x.weight", "F8_E4M3", {136, 144}), t("m.x.weight_scale_inv", "F32", {2, 2})});
  const auto storage = detect_linear(index, "m.x", blocks_of(128, 128));
  ASSERT_TRUE(storage.has_value());
  EXPECT_EQ(storage->encoding, formats::kFp8Block128);
  const auto other = detect_linear(index, "m.x", blocks_of(64, 64));
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(to_string(other.error()), HasSubstr("64 x 64"));
}

TEST(DetectLinear, OneNumberIsABlockOnlyWhereBlocksAreSpokenOf) {
  expect_storage({t("m.x.weight", "F8_E4M3", {64, 96}), t("m.x.weight_scale_inv", "F32", {1, 1})},
                 {StorageKind::kFp8Block, 0, 64, 96, InAxis::kLast}, false);
  expect_storage({t("m.x.weight", "F8_E4M3", {64, 96}), t("m.x.weight_scale", "F32", {1, 1})},
                 {StorageKind::kFp8Tensor, 0, 64, 96, InAxis::kLast}, false);
  expect_storage({t("m.x.weight", "F8_E4M3", {64, 96}), t("m.x.weight_scale", "F32", {1, 1})},
                 {StorageKind::kFp8Block, 0, 64, 96, InAxis::kLast}, false, blocks_of(128, 128));
}

TEST(DetectLinear, RefusesAMissingSecondLevelNamingIt) {
  const Error modelopt =
      fault_of({t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4})});
  EXPECT_EQ(modelopt.code, Code::kInvalidSource);
  EXPECT_THAT(to_string(modelopt), HasSubstr("tensor m.x.weight: want weight_scale_2 beside it"));
  const Error compressed =
      fault_of({t("m.x.weight_packed", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4})});
  EXPECT_THAT(to_string(compressed), HasSubstr("weight_global_scale"));
}

TEST(DetectLinear, RefusesAMissingScale) {
  for (const char* dtype : {"U8", "F8_E4M3", "F8_E5M2"}) {
    const Error error = fault_of({t("m.x.weight", dtype, {6, 32})});
    EXPECT_EQ(error.code, Code::kInvalidSource) << dtype;
    EXPECT_THAT(to_string(error), HasSubstr("tensor m.x.weight: want a")) << dtype;
  }
}

TEST(DetectLinear, RefusesTwoWeightsAndTwoScales) {
  EXPECT_THAT(to_string(fault_of(
                  {t("m.x.weight", "BF16", {6, 32}), t("m.x.weight_packed", "U8", {6, 16})})),
              HasSubstr("want one kind of weight for a linear"));
  EXPECT_THAT(
      to_string(fault_of({t("m.x.weight", "F8_E4M3", {6, 32}), t("m.x.weight_scale", "F32", {}),
                          t("m.x.weight_scale_inv", "F32", {1, 1})})),
      HasSubstr("want only one tensor for one part"));
  EXPECT_THAT(to_string(fault_of(
                  {t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4}),
                   t("m.x.weight_scale_2", "F32", {}), t("m.x.weight_global_scale", "F32", {})})),
              HasSubstr("weight_global_scale"));
}

TEST(DetectLinear, RefusesScalesWhoseShapeDoesNotFit) {
  const std::vector<std::vector<TensorEntry>> cases = {
      {t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 3}),
       t("m.x.weight_scale_2", "F32", {})},
      {t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {5, 4}),
       t("m.x.weight_scale_2", "F32", {})},
      {t("m.x.weight", "U8", {6, 33}), t("m.x.weight_scale", "F8_E4M3", {6, 4}),
       t("m.x.weight_scale_2", "F32", {})},
      {t("m.x.weight_packed", "U8", {6, 32}), t("m.x.weight_scale", "U8", {6, 4})},
      {t("m.x.weight_packed", "U8", {6, 32}), t("m.x.weight_scale", "BF16", {6, 2})},
      {t("m.x.weight", "F8_E4M3", {256, 384}), t("m.x.weight_scale", "F32", {3, 2})},
      {t("m.x.weight", "F8_E4M3", {256, 384}), t("m.x.weight_scale", "F32", {384})},
      {t("m.x.weight", "F8_E4M3", {256, 384}), t("m.x.weight_scale", "I32", {256})},
      {t("m.x.weight", "F8_E4M3", {256, 384}), t("m.x.weight_scale", "F32", {2, 3, 1, 1})},
  };
  for (const auto& tensors : cases) {
    const Error error = fault_of(tensors);
    EXPECT_EQ(error.code, Code::kInvalidSource);
    EXPECT_THAT(to_string(error), HasSubstr("tensor m.x.weight_scale"));
    EXPECT_THAT(error.found, HasSubstr("["));
  }
  EXPECT_THAT(
      to_string(fault_of({t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4}),
                          t("m.x.weight_scale_2", "F32", {6})})),
      HasSubstr("tensor m.x.weight_scale_2"));
}

TEST(DetectLinear, RefusesAScaleBesidePlainNumbers) {
  EXPECT_THAT(
      to_string(fault_of({t("m.x.weight", "BF16", {6, 32}), t("m.x.weight_scale", "F32", {})})),
      HasSubstr("tensor m.x.weight_scale: want no scale beside m.x.weight"));
}

TEST(DetectLinear, NamesStoragesThatItCannotUse) {
  const std::vector<std::pair<std::vector<TensorEntry>, const char*>> cases = {
      {{t("m.x.weight_packed", "I32", {6, 4}), t("m.x.weight_scale", "BF16", {6, 1}),
        t("m.x.weight_shape", "I64", {2})},
       "pack-quantized"},
      {{t("m.x.weight_packed", "I32", {6, 4}), t("m.x.weight_scale", "BF16", {6, 1})},
       "pack-quantized"},
      {{t("m.x.weight", "I8", {6, 32}), t("m.x.weight_scale", "BF16", {6, 1})}, "int8"},
      {{t("m.x.weight", "I8", {6, 32})}, "int8"},
      {{t("m.x.qweight", "I32", {6, 4}), t("m.x.qzeros", "I32", {1})}, "GPTQ or AWQ"},
      {{t("m.x.weight", "U8", {96, 1}), t("m.x.weight.absmax", "F32", {3})}, "bitsandbytes"},
      {{t("m.x.weight", "U8", {6, 32}), t("m.x.weight_scale", "F8_E4M3", {6, 4}),
        t("m.x.weight_scale_2", "F32", {}), t("m.x.pre_quant_scale", "F32", {64})},
       "AWQ"},
      {{t("m.x.weight", "F8_E4M3FNUZ", {6, 32}), t("m.x.weight_scale", "F32", {})}, "FNUZ"},
      {{t("m.x.weight", "I64", {6, 32})}, "I64"},
  };
  for (const auto& [tensors, text] : cases) {
    const Error error = fault_of(tensors);
    EXPECT_EQ(error.code, Code::kUnsupported) << text;
    EXPECT_THAT(to_string(error), HasSubstr(text));
    EXPECT_THAT(to_string(error), HasSubstr("m.x"));
  }
}

TEST(DetectLinear, RefusesAnUnknownDtypeOfATensorThatItNeeds) {
  const Error error = fault_of({{"m.x.weight", "F3", {6, 4}, 9}});
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_THAT(to_string(error), HasSubstr("tensor m.x.weight"));
  EXPECT_THAT(to_string(error), HasSubstr("F3"));
}

TEST(DetectLinear, NamesTheNearestWhereThereIsNoWeight) {
  const TensorIndex index = index_of({t("m.y.weight", "BF16", {6, 4})});
  EXPECT_FALSE(has_linear(index, "m.x"));
  EXPECT_TRUE(has_linear(index, "m.y"));
  const auto storage = detect_linear(index, "m.x", {});
  ASSERT_FALSE(storage.has_value());
  EXPECT_THAT(to_string(storage.error()), HasSubstr("nearest is m.y.weight"));
}

TEST(DetectLinear, RefusesMisshapedWeightsAndBiases) {
  EXPECT_THAT(to_string(fault_of({t("m.x.weight", "BF16", {6})})), HasSubstr("want 2 dimensions"));
  EXPECT_THAT(to_string(fault_of({t("m.x.weight", "BF16", {6, 0})})), HasSubstr("from 1"));
  EXPECT_THAT(to_string(fault_of({t("m.x.weight", "BF16", {6, 4}), t("m.x.bias", "BF16", {4})})),
              HasSubstr("tensor m.x.bias: want a bias for BF16 [6, 4], found BF16 [4]"));
  EXPECT_THAT(to_string(fault_of({t("m.x.weight", "BF16", {6, 4}), t("m.x.bias", "BF16", {6, 1})})),
              HasSubstr("tensor m.x.bias"));
}

TEST(DetectFused, GptOssBlocks) {
  expect_storage({t("m.x_blocks", "U8", {3, 8, 2, 16}), t("m.x_scales", "U8", {3, 8, 2}),
                  t("m.x_bias", "BF16", {3, 8})},
                 {StorageKind::kMxfp4, 3, 8, 64, InAxis::kLast}, true);
  EXPECT_THAT(to_string(fault_of(
                  {t("m.x_blocks", "U8", {3, 8, 2, 16}), t("m.x_scales", "U8", {3, 8, 3})}, true)),
              HasSubstr("tensor m.x_scales: want U8 [3, 8, 2], found U8 [3, 8, 3]"));
  EXPECT_THAT(to_string(fault_of(
                  {t("m.x_blocks", "U8", {3, 8, 2, 8}), t("m.x_scales", "U8", {3, 8, 2})}, true)),
              HasSubstr("16 bytes in the last dimension"));
}

TEST(DetectFused, DenseStacksDoNotSayWhichAxisIsIn) {
  expect_storage({t("m.x", "BF16", {3, 8, 6}), t("m.x_bias", "BF16", {3, 6})},
                 {StorageKind::kDense, 3, 8, 6, InAxis::kUnknown}, true);
  expect_storage({t("m.x.weight", "BF16", {3, 8, 6})},
                 {StorageKind::kDense, 3, 8, 6, InAxis::kUnknown}, true);
  EXPECT_THAT(
      to_string(fault_of({t("m.x", "BF16", {3, 8, 6}), t("m.x_bias", "BF16", {3, 5})}, true)),
      HasSubstr("tensor m.x_bias"));
  EXPECT_THAT(to_string(fault_of({t("m.x", "BF16", {8, 6})}, true)),
              HasSubstr("want 3 dimensions"));
}

TEST(DetectFused, ModelOptNvfp4AlongEitherAxis) {
  expect_storage({t("m.x", "U8", {3, 8, 32}), t("m.x_weight_scale", "F8_E4M3", {3, 8, 4}),
                  t("m.x_weight_scale_2", "F32", {3}), t("m.x_input_scale", "F32", {})},
                 {StorageKind::kNvfp4ModelOpt, 3, 8, 64, InAxis::kLast}, true);
  expect_storage({t("m.x", "U8", {3, 8, 32}), t("m.x_weight_scale", "F8_E4M3", {3, 8, 4}),
                  t("m.x_weight_scale_2", "F32", {3, 2})},
                 {StorageKind::kNvfp4ModelOpt, 3, 8, 64, InAxis::kLast}, true);
  expect_storage({t("m.x", "U8", {3, 48, 192}), t("m.x_weight_scale", "F8_E4M3", {3, 6, 192}),
                  t("m.x_weight_scale_2", "F32", {}), t("m.x_bias", "BF16", {3, 192})},
                 {StorageKind::kNvfp4ModelOpt, 3, 96, 192, InAxis::kMiddle}, true);
  EXPECT_THAT(to_string(fault_of(
                  {t("m.x", "U8", {3, 48, 192}), t("m.x_weight_scale", "F8_E4M3", {3, 6, 192}),
                   t("m.x_weight_scale_2", "F32", {}), t("m.x_bias", "BF16", {3, 96})},
                  true)),
              HasSubstr("tensor m.x_bias"));
  EXPECT_THAT(to_string(fault_of(
                  {t("m.x", "U8", {3, 8, 32}), t("m.x_weight_scale", "F8_E4M3", {3, 8, 4})}, true)),
              HasSubstr("weight_scale_2"));
}

TEST(DetectFused, CompressedTensorsGluedAndNested) {
  const Expected expected{StorageKind::kNvfp4CompressedTensors, 3, 8, 64, InAxis::kLast};
  expect_storage({t("m.x_packed", "U8", {3, 8, 32}), t("m.x_scale", "F8_E4M3", {3, 8, 4}),
                  t("m.x_global_scale", "F32", {3, 1})},
                 expected, true);
  expect_storage(
      {t("m.x.weight_packed", "U8", {3, 8, 32}), t("m.x.weight_scale", "F8_E4M3", {3, 8, 4}),
       t("m.x.weight_global_scale", "F32", {3, 1})},
      expected, true);
  EXPECT_THAT(
      to_string(fault_of(
          {t("m.x_packed", "U8", {3, 8, 32}), t("m.x.weight_packed", "U8", {3, 8, 32})}, true)),
      HasSubstr("want only one tensor for one part"));
}

TEST(DetectFused, Fp8StacksInTheirNamings) {
  for (const char* suffix : {"_scale_inv", "_scales_inv", "_weight_scale_inv"}) {
    expect_storage(
        {t("m.x", "F8_E4M3", {3, 136, 144}), t("m.x" + std::string(suffix), "F32", {3, 2, 2})},
        {StorageKind::kFp8Block, 3, 136, 144, InAxis::kUnknown}, true);
  }
  expect_storage({t("m.x", "F8_E4M3", {3, 8, 6}), t("m.x_weight_scale", "F32", {3, 8, 1})},
                 {StorageKind::kFp8Channel, 3, 8, 6, InAxis::kLast}, true);
  expect_storage({t("m.x", "F8_E4M3", {3, 8, 6}), t("m.x_weight_scale", "F32", {3, 1, 6})},
                 {StorageKind::kFp8Channel, 3, 8, 6, InAxis::kMiddle}, true);
  expect_storage({t("m.x", "F8_E4M3", {3, 8, 6}), t("m.x_weight_scale", "F32", {3, 1, 1})},
                 {StorageKind::kFp8Tensor, 3, 8, 6, InAxis::kUnknown}, true);
  expect_storage({t("m.x", "F8_E4M3", {3, 8, 6}), t("m.x_weight_scale", "F32", {})},
                 {StorageKind::kFp8Tensor, 3, 8, 6, InAxis::kUnknown}, true);
}

TEST(DetectFused, DoesNotTakeOtherNamesForItsParts) {
  const TensorIndex index = index_of({t("m.x", "BF16", {3, 8, 6}), t("m.xy", "BF16", {3, 8, 6}),
                                      t("m.x_extra", "BF16", {1}), t("m.x.lora", "BF16", {1})});
  const auto storage = detect_fused(index, "m.x", {});
  ASSERT_TRUE(storage.has_value());
  EXPECT_EQ(storage->tensors().size(), 1U);
  EXPECT_FALSE(has_linear(index, "m.x"));
  EXPECT_TRUE(has_fused(index, "m.x"));
}

}  // namespace
}  // namespace lode::checkpoint
