#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lode/loader/bind_test_support.h"
#include "tests/support/edited_checkpoint.h"

namespace lode::loader {
namespace {

using formats::Format;
using testing::AllOf;
using testing::Field;
using testing::HasSubstr;
using testing_support::EditedCheckpoint;

const std::filesystem::path kGolden(LODE_GOLDEN_DIR);
const std::filesystem::path kQuantised = kGolden / "quantised";
const std::filesystem::path kModels = kGolden / "models";

Error refusal(EditedCheckpoint& checkpoint) {
  const auto binding = bind_folder(checkpoint.write());
  if (!binding) return binding.error();
  ADD_FAILURE() << "was bound";
  return {};
}

testing::Matcher<Error> Names(Code code, const std::string& tensor) {
  return AllOf(Field("code", &Error::code, code), Field("thing", &Error::thing, HasSubstr(tensor)));
}

struct RenameCase {
  const char* folder;
  const char* tensor;
};

class RenamedTensor : public testing::TestWithParam<RenameCase> {};

// A misspelt name of every role, once: the message has the right name and the wrong one.
TEST_P(RenamedTensor, IsNamedTogetherWithTheNearestThatThereIs) {
  EditedCheckpoint checkpoint(kGolden / GetParam().folder);
  const std::string name = GetParam().tensor;
  std::string misspelt = name;
  misspelt[misspelt.find_last_of('.') - 1] = 'x';
  checkpoint.rename(name, misspelt);
  const Error error = refusal(checkpoint);
  EXPECT_EQ(error.code, Code::kInvalidSource);
  EXPECT_THAT(error.thing, HasSubstr(name));
  EXPECT_THAT(error.wanted, HasSubstr("["));
  EXPECT_THAT(error.hint, HasSubstr(misspelt));
}

INSTANTIATE_TEST_SUITE_P(
    OfEveryRole, RenamedTensor,
    testing::Values(
        RenameCase{"models/qwen3_moe", "model.embed_tokens.weight"},
        RenameCase{"models/qwen3_moe", "model.norm.weight"},
        RenameCase{"models/qwen3_moe", "lm_head.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.input_layernorm.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.self_attn.q_proj.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.self_attn.k_proj.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.self_attn.v_proj.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.self_attn.o_proj.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.self_attn.q_norm.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.self_attn.k_norm.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.post_attention_layernorm.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.mlp.gate.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.mlp.experts.7.gate_proj.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.mlp.experts.7.up_proj.weight"},
        RenameCase{"models/qwen3_moe", "model.layers.1.mlp.experts.7.down_proj.weight"},
        RenameCase{"quantised/bf16_per_expert_small", "model.layers.0.mlp.gate_proj.weight"},
        RenameCase{"quantised/bf16_per_expert_small", "model.layers.0.mlp.up_proj.weight"},
        RenameCase{"quantised/bf16_per_expert_small", "model.layers.0.mlp.down_proj.weight"},
        RenameCase{"models/gpt_oss", "model.layers.1.self_attn.q_proj.bias"},
        RenameCase{"models/gpt_oss", "model.layers.1.self_attn.k_proj.bias"},
        RenameCase{"models/gpt_oss", "model.layers.1.self_attn.v_proj.bias"},
        RenameCase{"models/gpt_oss", "model.layers.1.self_attn.o_proj.bias"},
        RenameCase{"models/gpt_oss", "model.layers.1.self_attn.sinks"},
        RenameCase{"models/gpt_oss", "model.layers.1.mlp.router.weight"},
        RenameCase{"models/gpt_oss", "model.layers.1.mlp.router.bias"}));

TEST(BindRefuses, ARenamedStackOfExperts) {
  for (const std::string ending :
       {"gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"}) {
    EditedCheckpoint checkpoint(kModels / "gpt_oss");
    const std::string name = "model.layers.1.mlp.experts." + ending;
    checkpoint.rename(name, "model.layers.1.mlp.experts.x" + ending);
    const Error error = refusal(checkpoint);
    EXPECT_THAT(error, Names(Code::kInvalidSource, name));
    EXPECT_THAT(error.hint, HasSubstr("experts.x" + ending));
  }
}

TEST(BindRefuses, ATensorThatNoRoleWants) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.add("model.layers.0.mlp.shared_expert.up_proj.weight", Format::kBf16, {4, 4});
  const Error error = refusal(checkpoint);
  EXPECT_THAT(error, Names(Code::kInvalidSource, "model.layers.0.mlp.shared_expert.up_proj"));
  EXPECT_EQ(error.where, "model.safetensors");
  EXPECT_EQ(error.found, "BF16 [4, 4]");
}

TEST(BindRefuses, MoreExpertsThanTheConfigHas) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.add("model.layers.0.mlp.experts.8.up_proj.weight", Format::kBf16, {32, 64});
  EXPECT_THAT(refusal(checkpoint),
              Names(Code::kInvalidSource, "model.layers.0.mlp.experts.8.up_proj.weight"));
}

TEST(BindRefuses, ABiasWhereTheConfigHasNone) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.add("model.layers.0.self_attn.q_proj.bias", Format::kBf16, {96});
  EXPECT_THAT(refusal(checkpoint), Names(Code::kInvalidSource, "self_attn.q_proj.bias"));
}

TEST(BindRefuses, AMatrixOfAnotherShape) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.at("model.layers.0.self_attn.q_proj.weight").dims = {64, 96};
  const Error error = refusal(checkpoint);
  EXPECT_THAT(error, Names(Code::kInvalidSource, "model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(error.wanted, HasSubstr("[96, 64]"));
  EXPECT_EQ(error.found, "BF16 [64, 96]");
  EXPECT_EQ(error.where, "model.safetensors");
}

TEST(BindRefuses, AVectorOfAnotherShape) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.at("model.norm.weight").dims = {2, 32};
  const Error error = refusal(checkpoint);
  EXPECT_THAT(error, Names(Code::kInvalidSource, "model.norm.weight"));
  EXPECT_THAT(error.wanted, HasSubstr("[64]"));
}

TEST(BindRefuses, AVectorOfIntegers) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.at("model.norm.weight").format = Format::kI16;
  EXPECT_THAT(refusal(checkpoint), Names(Code::kInvalidSource, "model.norm.weight"));
}

TEST(BindRefuses, AStackOfAnotherShape) {
  EditedCheckpoint checkpoint(kQuantised / "bf16_fused_cat_small");
  checkpoint.at("model.layers.1.mlp.experts.down_proj").dims = {4, 48, 128};
  const Error error = refusal(checkpoint);
  EXPECT_THAT(error, Names(Code::kInvalidSource, "model.layers.1.mlp.experts.down_proj"));
  EXPECT_THAT(error.wanted, HasSubstr("[4, 64, 96]"));
  EXPECT_EQ(error.found, "BF16 [4, 48, 128]");
}

TEST(BindRefuses, AStackOfFewerExperts) {
  EditedCheckpoint checkpoint(kModels / "gpt_oss");
  checkpoint.edit_config("\"num_local_experts\": 8", "\"num_local_experts\": 4");
  checkpoint.at("model.layers.0.mlp.router.weight").dims = {4, 128};
  EXPECT_EQ(refusal(checkpoint).code, Code::kInvalidSource);
}

TEST(BindRefuses, AStackOfBiasesOfAnotherShape) {
  EditedCheckpoint checkpoint(kModels / "gpt_oss");
  checkpoint.at("model.layers.0.mlp.experts.gate_up_proj_bias").dims = {16, 32};
  EXPECT_THAT(refusal(checkpoint), Names(Code::kInvalidSource, "experts.gate_up_proj_bias"));
}

TEST(BindRefuses, CodesWithoutTheirScale) {
  for (const auto& [folder, scale, codes] :
       {std::tuple{"modelopt_nvfp4", "experts.1.up_proj.weight_scale", "up_proj.weight"},
        std::tuple{"modelopt_nvfp4", "experts.1.up_proj.weight_scale_2", "up_proj.weight"},
        std::tuple{"ct_nvfp4", "experts.1.up_proj.weight_global_scale", "up_proj.weight_packed"},
        std::tuple{"block_fp8", "experts.1.up_proj.weight_scale_inv", "up_proj.weight"},
        std::tuple{"gptoss_mxfp4", "experts.gate_up_proj_scales", "gate_up_proj_blocks"},
        std::tuple{"gptoss_modelopt_nvfp4", "experts.down_proj_weight_scale_2", "down_proj"}}) {
    EditedCheckpoint checkpoint(kQuantised / folder);
    checkpoint.erase("model.layers.1.mlp." + std::string(scale));
    const Error error = refusal(checkpoint);
    EXPECT_THAT(error, Names(Code::kInvalidSource, codes)) << folder;
    EXPECT_EQ(error.where, "model.safetensors") << folder;
  }
}

TEST(BindRefuses, ScalesOfAnotherDtype) {
  EditedCheckpoint checkpoint(kQuantised / "modelopt_nvfp4");
  const std::string name = "model.layers.1.mlp.experts.1.up_proj.weight_scale";
  checkpoint.at(name).format = Format::kI8;
  EXPECT_THAT(refusal(checkpoint), Names(Code::kInvalidSource, name));
}

TEST(BindRefuses, ASecondLevelScaleThatIsNotF32) {
  EditedCheckpoint checkpoint(kQuantised / "modelopt_nvfp4");
  const std::string name = "model.layers.1.mlp.experts.1.up_proj.weight_scale_2";
  checkpoint.erase(name);
  checkpoint.add(name, Format::kBf16, {});
  EXPECT_THAT(refusal(checkpoint), Names(Code::kInvalidSource, name));
}

TEST(BindRefuses, ExpertsKeptInTwoWays) {
  EditedCheckpoint checkpoint(kQuantised / "bf16_fused_cat_small");
  checkpoint.add("model.layers.1.mlp.experts.0.gate_proj.weight", Format::kBf16, {96, 64});
  const Error error = refusal(checkpoint);
  EXPECT_THAT(error, Names(Code::kInvalidSource, "model.layers.1.mlp.experts."));
  EXPECT_THAT(error.hint, HasSubstr("model.layers.1.mlp.experts."));
}

TEST(BindRefuses, ExpertsOfUnlikeNumberFormats) {
  EditedCheckpoint checkpoint(kQuantised / "bf16_per_expert_small");
  auto& odd = checkpoint.at("model.layers.1.mlp.experts.3.up_proj.weight");
  odd.format = Format::kF32;
  odd.bytes.resize(2 * odd.bytes.size());
  EXPECT_THAT(refusal(checkpoint),
              Names(Code::kUnsupported, "model.layers.1.mlp.experts.3.up_proj"));
}

TEST(BindRefuses, GateAndUpOfUnlikeNumberFormats) {
  EditedCheckpoint checkpoint(kQuantised / "bf16_per_expert_small");
  auto& odd = checkpoint.at("model.layers.0.mlp.up_proj.weight");
  odd.format = Format::kF32;
  odd.bytes.resize(2 * odd.bytes.size());
  EXPECT_THAT(refusal(checkpoint), Names(Code::kUnsupported, "model.layers.0.mlp.up_proj"));
}

// compressed-tensors w4a16: eight int4 in an I32, scales a group of 32, the shape beside them.
TEST(BindRefuses, PackedInt4AsUnsupported) {
  EditedCheckpoint checkpoint(kQuantised / "bf16_per_expert_small");
  const std::string module = "model.layers.1.mlp.experts.0.gate_proj";
  checkpoint.erase(module + ".weight");
  checkpoint.add(module + ".weight_packed", Format::kI32, {96, 8});
  checkpoint.add(module + ".weight_scale", Format::kBf16, {96, 2});
  checkpoint.add(module + ".weight_shape", Format::kI64, {2});
  EXPECT_THAT(refusal(checkpoint), Names(Code::kUnsupported, module));
}

TEST(BindRefuses, E5m2AsUnsupported) {
  EditedCheckpoint checkpoint(kQuantised / "ct_fp8_tensor");
  const std::string name = "model.layers.1.mlp.experts.0.gate_proj.weight";
  checkpoint.at(name).format = Format::kE5m2;
  EXPECT_THAT(refusal(checkpoint), Names(Code::kUnsupported, name));
}

TEST(BindRefuses, AQuantisedRouter) {
  EditedCheckpoint checkpoint(kQuantised / "ct_fp8_tensor");
  checkpoint.erase("model.layers.1.mlp.gate.weight");
  checkpoint.add("model.layers.1.mlp.gate.weight", Format::kE4m3, {4, 64});
  checkpoint.add("model.layers.1.mlp.gate.weight_scale", Format::kF32, {1});
  EXPECT_THAT(refusal(checkpoint), Names(Code::kUnsupported, "model.layers.1.mlp.gate.weight"));
}

TEST(BindRefuses, FactorsOnActivations) {
  EditedCheckpoint checkpoint(kQuantised / "modelopt_nvfp4");
  checkpoint.add("model.layers.1.self_attn.q_proj.pre_quant_scale", Format::kBf16, {128});
  EXPECT_THAT(refusal(checkpoint), Names(Code::kUnsupported, "model.layers.1.self_attn.q_proj"));
}

TEST(BindRefuses, GptOssExpertsWhoseRowOrderNobodyKnows) {
  EditedCheckpoint checkpoint(kModels / "gpt_oss");
  checkpoint.edit_config("\"hidden_size\"",
                         "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                         "\"format\": \"nvfp4-pack-quantized\", \"config_groups\": {}}, "
                         "\"hidden_size\"");
  for (const char* ending : {"gate_up_proj", "down_proj"}) {
    checkpoint.erase(std::string("model.layers.0.mlp.experts.") + ending);
    checkpoint.erase(std::string("model.layers.0.mlp.experts.") + ending + "_bias");
  }
  checkpoint.add("model.layers.0.mlp.experts.0.gate_proj.weight", Format::kBf16, {32, 64});
  EXPECT_THAT(refusal(checkpoint),
              Names(Code::kUnsupported, "model.layers.0.mlp.experts.0.gate_proj.weight"));
}

}  // namespace
}  // namespace lode::loader
