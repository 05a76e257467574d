#include "lode/checkpoint/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::TempFolder;

Result<QuantConfig> parse(std::string_view in_config, std::string_view beside = "null") {
  const json::Value config = *json::parse(in_config);
  const json::Value file = *json::parse(beside);
  return parse_quant_config(&config, &file);
}

QuantConfig config_of(std::string_view in_config, std::string_view beside = "null") {
  Result<QuantConfig> config = parse(in_config, beside);
  EXPECT_TRUE(config.has_value()) << to_string(config.error());
  return config ? *std::move(config) : QuantConfig();
}

QuantConfig golden(std::string_view name) {
  const std::filesystem::path folder =
      std::filesystem::path(LODE_GOLDEN_DIR) / "quantised" / std::string(name);
  const Result<HfConfig> config = HfConfig::read(folder);
  EXPECT_TRUE(config.has_value());
  Result<QuantConfig> quant = read_quant_config(folder, *config);
  EXPECT_TRUE(quant.has_value()) << to_string(quant.error());
  return quant ? *std::move(quant) : QuantConfig();
}

TEST(QuantConfig, IsNoneWhereNothingIsSaid) {
  EXPECT_EQ(config_of("null").dialect, Dialect::kNone);
  EXPECT_EQ(golden("bf16_per_expert").dialect, Dialect::kNone);
}

TEST(QuantConfig, ReadsEveryGoldenFolder) {
  EXPECT_EQ(golden("gptoss_mxfp4").dialect, Dialect::kMxfp4);
  EXPECT_EQ(golden("modelopt_nvfp4").dialect, Dialect::kModelOpt);
  EXPECT_EQ(golden("modelopt_nvfp4").algorithm, "NVFP4");
  EXPECT_EQ(golden("modelopt_nvfp4").rule_of("model.layers.0.mlp.up_proj")->group_size, 16);
  EXPECT_EQ(golden("ct_nvfp4").dialect, Dialect::kCompressedTensors);
  EXPECT_EQ(golden("ct_nvfp4").algorithm, "nvfp4-pack-quantized");
  EXPECT_EQ(golden("ct_fp8_block").block, (std::array{128U, 128U}));
  EXPECT_TRUE(golden("ct_fp8_block").block_stated);
  EXPECT_EQ(golden("block_fp8").dialect, Dialect::kFp8);
  EXPECT_TRUE(golden("block_fp8").block_stated);
  EXPECT_EQ(golden("fbgemm_fp8_row").dialect, Dialect::kFbgemmFp8);
}

TEST(QuantConfig, KnowsWhatEveryGoldenFolderLeavesAlone) {
  for (const char* name : {"modelopt_nvfp4", "modelopt_fp8", "ct_nvfp4", "ct_fp8_block",
                           "ct_fp8_channel", "ct_fp8_tensor", "block_fp8", "fbgemm_fp8_row"}) {
    const QuantConfig config = golden(name);
    EXPECT_TRUE(config.is_excluded("lm_head")) << name;
    EXPECT_TRUE(config.is_excluded("model.layers.1.mlp.gate")) << name;
    EXPECT_TRUE(config.is_excluded("model.language_model.layers.1.mlp.gate")) << name;
    EXPECT_FALSE(config.is_excluded("model.layers.1.mlp.experts.0.gate_proj")) << name;
    EXPECT_FALSE(config.is_excluded("model.layers.0.mlp.gate_proj")) << name;
    EXPECT_THAT(config.notes, IsEmpty()) << name;
  }
  for (const char* name : {"gptoss_mxfp4", "gptoss_modelopt_nvfp4"}) {
    const QuantConfig config = golden(name);
    EXPECT_TRUE(config.is_excluded("model.layers.1.mlp.router")) << name;
    EXPECT_FALSE(config.is_excluded("model.layers.1.mlp.experts.gate_up_proj")) << name;
  }
  EXPECT_TRUE(golden("gptoss_mxfp4").is_excluded("model.layers.1.self_attn.q_proj"));
}

TEST(QuantConfig, NamesADialectThatItDoesNotKnow) {
  const auto config = parse(R"({"quant_method":"bitsandbytes"})");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, Code::kUnsupported);
  EXPECT_THAT(to_string(config.error()), HasSubstr("bitsandbytes"));
  EXPECT_EQ(parse("{}").error().code, Code::kUnsupported);
}

TEST(QuantConfig, TellsDialectsThatDoNotSayTheirName) {
  EXPECT_EQ(config_of(R"({"producer":{"name":"modelopt"},"quant_algo":"FP8"})").dialect,
            Dialect::kModelOpt);
  EXPECT_EQ(config_of(R"({"format":"float-quantized","config_groups":{}})").dialect,
            Dialect::kCompressedTensors);
  EXPECT_EQ(config_of(R"({"quant_method":"modelopt_fp4"})").dialect, Dialect::kModelOpt);
  EXPECT_EQ(config_of("null", R"({"producer":{"name":"modelopt"},)"
                              R"("quantization":{"quant_algo":"NVFP4","group_size":16}})")
                .algorithm,
            "NVFP4");
}

TEST(QuantConfig, FillsFromTheFileBesideWhatConfigLeavesOpen) {
  const QuantConfig config = config_of(
      R"({"quant_method":"modelopt","quant_algo":"MXFP8"})",
      R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"MXFP8","group_size":32,)"
      R"("kv_cache_quant_algo":"FP8","exclude_modules":["lm_head"]}})");
  EXPECT_TRUE(config.is_excluded("lm_head"));
  EXPECT_EQ(config.kv_cache, "FP8");
  EXPECT_EQ(config.rules.at(0).group_size, 32);
}

TEST(QuantConfig, InMixedPrecisionWhatIsNotNamedIsNotQuantised) {
  const QuantConfig config = config_of(
      R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","ignore":[]})",
      R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"MIXED_PRECISION",)"
      R"("quantized_layers":{"model.layers.0.mlp.experts":{"quant_algo":"NVFP4","group_size":16},)"
      R"("model.layers.0.self_attn.q_proj":{"quant_algo":"FP8"}}}})");
  EXPECT_TRUE(config.is_excluded("lm_head"));
  EXPECT_TRUE(config.is_excluded("model.layers.0.mlp.gate"));
  EXPECT_FALSE(config.is_excluded("model.layers.0.mlp.experts.5.up_proj"));
  EXPECT_EQ(config.rule_of("model.layers.0.mlp.experts.5.up_proj")->algorithm, "NVFP4");
  EXPECT_EQ(config.rule_of("layers.0.self_attn.q_proj")->algorithm, "FP8");
}

TEST(QuantConfig, TheFirstGroupThatNamesAModuleCounts) {
  const QuantConfig config = config_of(
      R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{)"
      R"("fp8":{"format":"float-quantized","targets":["re:.*layers.(5[6-9]|6[0-3])\\..*"],)"
      R"("weights":{"num_bits":8,"strategy":"channel"}},)"
      R"("fp4":{"format":"nvfp4-pack-quantized","targets":["Linear"],)"
      R"("weights":{"num_bits":4,"group_size":16}}}})");
  EXPECT_EQ(config.rule_of("model.layers.57.mlp.up_proj")->algorithm, "float-quantized");
  EXPECT_EQ(config.rule_of("model.layers.57.mlp.up_proj")->strategy, "channel");
  EXPECT_EQ(config.rule_of("model.layers.3.mlp.up_proj")->bits, 4);
}

TEST(QuantConfig, AnEmptyListIsNotReplacedByDefaults) {
  const QuantConfig config = config_of(R"({"quant_method":"fp8","modules_to_not_convert":[]})");
  EXPECT_FALSE(config.is_excluded("lm_head"));
  EXPECT_FALSE(config.block_stated);
}

TEST(QuantConfig, NotesPatternsThatItCannotRead) {
  const QuantConfig config =
      config_of(R"~({"quant_method":"compressed-tensors","ignore":["re:(?!x)y","lm_head"],)~"
                R"~("config_groups":{"g":{"targets":["re:(?=a)"],"weights":{"num_bits":4}}}})~");
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("(?!x)y"), HasSubstr("(?=a)")));
  EXPECT_TRUE(config.is_excluded("lm_head"));
  EXPECT_THAT(config.rules, IsEmpty());  // not: a rule for everything
}

TEST(QuantConfig, ReadsBlocksInBothSpellings) {
  const auto block = [](std::string_view sides) {
    return parse(R"({"quant_method":"fp8","weight_block_size":)" + std::string(sides) + "}");
  };
  EXPECT_EQ(block("[64,256]")->block, (std::array{64U, 256U}));
  EXPECT_EQ(block(R"("64x256")")->block, (std::array{64U, 256U}));
  for (const char* sides : {"[0,128]", "[-1,128]", "[128]", "[128,128,1]", "128", R"("128")",
                            R"("x")", R"("128x")", R"(["a","b"])", "[1e2,128]", "[2097152,1]"}) {
    const auto config = block(sides);
    ASSERT_FALSE(config.has_value()) << sides;
    EXPECT_EQ(config.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(config.error()), HasSubstr("quantization_config.weight_block_size"));
  }
}

TEST(QuantConfig, NamesThePathOfAValueOfAnotherKind) {
  for (const auto& [text, path] :
       {std::pair(R"([])", "quantization_config: want an object"),
        std::pair(R"({"quant_method":3})", "quantization_config.quant_method"),
        std::pair(R"({"quant_method":"modelopt","ignore":"lm_head"})",
                  "quantization_config.ignore"),
        std::pair(R"({"quant_method":"modelopt","ignore":[1]})", "quantization_config.ignore[0]"),
        std::pair(
            R"({"quant_method":"modelopt","config_groups":{"g":{"weights":{"num_bits":"4"}}}})",
            "quantization_config.config_groups.g.weights.num_bits"),
        std::pair(R"({"quant_method":"quark","global_quant_config":[]})",
                  "quantization_config.global_quant_config")}) {
    const auto config = parse(text);
    ASSERT_FALSE(config.has_value()) << text;
    EXPECT_EQ(config.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(config.error()), HasSubstr(path));
  }
}

TEST(QuantConfig, ReadsQuark) {
  const QuantConfig config = config_of(
      R"({"quant_method":"quark","exclude":["lm_head","*mlp.gate"],"layer_quant_config":{)"
      R"("*self_attn*":{"weight":{"dtype":"fp8_e4m3"}}},"global_quant_config":{)"
      R"("weight":{"dtype":"fp4","group_size":32,"qscheme":"per_group"}}})");
  EXPECT_EQ(config.dialect, Dialect::kQuark);
  EXPECT_EQ(config.rule_of("model.layers.0.self_attn.q_proj")->algorithm, "fp8_e4m3");
  EXPECT_EQ(config.rule_of("model.layers.0.mlp.up_proj")->algorithm, "fp4");
  EXPECT_TRUE(config.is_excluded("model.layers.0.mlp.gate"));
}

TEST(QuantConfig, NamesTheFileBesideWhenItIsDamaged) {
  const TempFolder folder;
  folder.write("hf_quant_config.json", "{");
  const auto config = read_quant_config(folder.path(), *HfConfig::parse("{}"));
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(to_string(config.error()), HasSubstr("hf_quant_config.json"));
}

}  // namespace
}  // namespace lode::checkpoint
