#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "lode/loader/bind_test_support.h"
#include "tests/support/edited_checkpoint.h"

namespace lode::loader {
namespace {

using formats::Format;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::EditedCheckpoint;
using Tensor = EditedCheckpoint::Tensor;

const std::filesystem::path kGolden(LODE_GOLDEN_DIR);
const std::filesystem::path kQuantised = kGolden / "quantised";
const std::filesystem::path kModels = kGolden / "models";
const std::string kExperts = "model.layers.1.mlp.experts.";

struct ExpertNumbers {
  std::vector<float> gate, up, down;
  bool operator==(const ExpertNumbers&) const = default;
};

struct Bound {
  Binding binding;
  std::vector<ExpertNumbers> experts;  // of layer 1
};

Bound bound(const std::filesystem::path& path) {
  const auto folder = open_folder(path);
  EXPECT_TRUE(folder) << to_string(folder.error());
  if (!folder) return {};
  auto binding = folder->bind();
  EXPECT_TRUE(binding) << to_string(binding.error());
  if (!binding) return {};
  const BoundNumbers numbers(folder->index);
  Bound result{*std::move(binding), {}};
  for (const ExpertSource& expert : result.binding.experts.at(1)) {
    result.experts.push_back(
        {numbers.matrix(expert.gate), numbers.matrix(expert.up), numbers.matrix(expert.down)});
  }
  return result;
}

// The same numbers, however the file is written.
void expect_same_experts(EditedCheckpoint& edited, const std::filesystem::path& original,
                         std::size_t num_shards = 1) {
  const Bound was = bound(original);
  const Bound is = bound(edited.write(num_shards));
  ASSERT_FALSE(was.experts.empty());
  ASSERT_EQ(is.experts.size(), was.experts.size());
  for (std::size_t expert = 0; expert < is.experts.size(); ++expert) {
    EXPECT_TRUE(is.experts[expert] == was.experts[expert]) << "expert " << expert;
  }
}

// One tensor of several, whose outermost axis is new.
Tensor stacked(EditedCheckpoint& checkpoint, std::string name,
               const std::vector<std::string>& parts, std::vector<std::uint64_t> dims) {
  Tensor stack{std::move(name), checkpoint.at(parts.front()).format, std::move(dims), {}};
  for (const std::string& part : parts) {
    const Tensor& tensor = checkpoint.at(part);
    stack.bytes.insert(stack.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    checkpoint.erase(part);
  }
  return stack;
}

// Names of one kind of tensor of all experts, expert after expert, gate before up.
std::vector<std::string> of_experts(std::uint64_t count, const std::vector<std::string>& modules,
                                    const std::string& ending) {
  std::vector<std::string> names;
  for (std::uint64_t expert = 0; expert < count; ++expert) {
    for (const std::string& module : modules) {
      std::string name = kExperts;
      name += std::to_string(expert);
      name += '.';
      name += module;
      name += ending;
      names.push_back(std::move(name));
    }
  }
  return names;
}

struct Ending {
  std::string from;  // of an expert's tensor, ".weight_scale"
  std::string to;    // of the stack's, "_weight_scale"
};

// Stacks layer 1 of a folder that has its experts one by one: gate over up, as [E, 2I, .].
void fuse(EditedCheckpoint& checkpoint, std::uint64_t count, const std::vector<Ending>& endings) {
  const auto join = [&](const std::vector<std::string>& modules, const std::string& name,
                        const Ending& ending) {
    const auto parts = of_experts(count, modules, ending.from);
    std::vector<std::uint64_t> dims = checkpoint.at(parts.front()).dims;
    if (dims.size() == 2) {
      dims[0] *= modules.size();
      dims.insert(dims.begin(), count);
    } else {
      dims = {count, modules.size()};
    }
    checkpoint.tensors.push_back(
        stacked(checkpoint, kExperts + name + ending.to, parts, std::move(dims)));
  };
  for (const Ending& ending : endings) {
    join({"gate_proj", "up_proj"}, "gate_up_proj", ending);
    join({"down_proj"}, "down_proj", ending);
  }
}

TEST(BindLayouts, ReadsFusedModelOptStacksWithAScaleEachForGateAndUp) {
  EditedCheckpoint checkpoint(kQuantised / "modelopt_nvfp4");
  fuse(checkpoint, 8,
       {{".weight", ""},
        {".weight_scale", "_weight_scale"},
        {".weight_scale_2", "_weight_scale_2"},
        {".input_scale", "_input_scale"}});
  expect_same_experts(checkpoint, kQuantised / "modelopt_nvfp4");
}

TEST(BindLayouts, ReadsFusedCompressedTensorsStacks) {
  EditedCheckpoint checkpoint(kQuantised / "ct_nvfp4");
  fuse(checkpoint, 8,
       {{".weight_packed", "_packed"},
        {".weight_scale", "_scale"},
        {".weight_global_scale", "_global_scale"},
        {".input_global_scale", "_input_global_scale"}});
  expect_same_experts(checkpoint, kQuantised / "ct_nvfp4");
}

TEST(BindLayouts, ReadsFusedStacksWithNestedNames) {
  EditedCheckpoint checkpoint(kQuantised / "ct_nvfp4");
  fuse(checkpoint, 8,
       {{".weight_packed", ".weight_packed"},
        {".weight_scale", ".weight_scale"},
        {".weight_global_scale", ".weight_global_scale"},
        {".input_global_scale", ".input_global_scale"}});
  expect_same_experts(checkpoint, kQuantised / "ct_nvfp4");
}

TEST(BindLayouts, ReadsThreeStacksApart) {
  EditedCheckpoint checkpoint(kQuantised / "ct_fp8_channel");
  for (const std::string module : {"gate_proj", "up_proj", "down_proj"}) {
    for (const std::string ending : {".weight", ".weight_scale"}) {
      const auto parts = of_experts(4, {module}, ending);
      std::vector<std::uint64_t> dims = checkpoint.at(parts.front()).dims;
      dims.insert(dims.begin(), 4);
      checkpoint.tensors.push_back(stacked(checkpoint, kExperts + module + ending, parts, dims));
    }
  }
  expect_same_experts(checkpoint, kQuantised / "ct_fp8_channel");
}

TEST(BindLayouts, ReadsChannelScalesOfFusedStacks) {
  EditedCheckpoint checkpoint(kQuantised / "fbgemm_fp8_row");
  fuse(checkpoint, 4, {{".weight", ""}, {".weight_scale", "_weight_scale"}});
  expect_same_experts(checkpoint, kQuantised / "fbgemm_fp8_row");
}

TEST(BindLayouts, FindsCodesAndScalesInDifferentShards) {
  for (const char* folder : {"ct_nvfp4", "gptoss_modelopt_nvfp4", "block_fp8"}) {
    EditedCheckpoint checkpoint(kQuantised / folder);
    expect_same_experts(checkpoint, kQuantised / folder, 5);
  }
}

TEST(BindLayouts, StoragesOfOneModelHoldTheSameNumbers) {
  const Bound one_by_one = bound(kQuantised / "bf16_per_expert_small");
  EXPECT_TRUE(bound(kQuantised / "bf16_fused_cat_small").experts == one_by_one.experts);
  EXPECT_TRUE(bound(kQuantised / "bf16_fused_transposed_small").experts == one_by_one.experts);
}

// Blocks of 64 rows over 2 x 96: rows of up begin in the middle of a block. Every scale is its own
// power of two and every code 1.0, so that a number tells which block it was thought to lie in.
TEST(BindLayouts, KeepsBlockScalesThatStraddleGateAndUp) {
  EditedCheckpoint checkpoint(kQuantised / "bf16_fused_cat_small");
  checkpoint.edit_config("\"hidden_size\"",
                         "\"quantization_config\": {\"quant_method\": \"fp8\", "
                         "\"weight_block_size\": [64, 32]}, \"hidden_size\"");
  const std::string wide = kExperts + "gate_up_proj";
  const std::string narrow = kExperts + "down_proj";
  checkpoint.erase(wide);
  checkpoint.erase(narrow);
  checkpoint.add(wide, Format::kE4m3, {4, 192, 64});
  checkpoint.add(wide + "_scale_inv", Format::kE8m0, {4, 3, 2});
  checkpoint.add(narrow, Format::kE4m3, {4, 64, 96});
  checkpoint.add(narrow + "_scales_inv", Format::kE8m0, {4, 1, 3});
  for (const std::string& name : {wide, narrow}) {
    for (std::byte& code : checkpoint.at(name).bytes) code = std::byte{0x38};
  }
  for (const std::string& name : {wide + "_scale_inv", narrow + "_scales_inv"}) {
    unsigned exponent = 127;
    for (std::byte& scale : checkpoint.at(name).bytes) scale = static_cast<std::byte>(exponent++);
  }
  const Bound is = bound(checkpoint.write());
  ASSERT_EQ(is.experts.size(), 4U);
  const ExpertNumbers& last = is.experts[3];  // its scales are numbers 18 to 23, and 9 to 11
  const auto power = [](int exponent) { return std::ldexp(1.0F, exponent); };
  EXPECT_EQ(last.gate[0], power(18));
  EXPECT_EQ(last.gate[63 * 64 + 63], power(19));
  EXPECT_EQ(last.gate[64 * 64], power(20));
  EXPECT_EQ(last.up[0], power(20));             // row 96 of the stack, in block 64 to 127
  EXPECT_EQ(last.up[31 * 64 + 32], power(21));  // row 127
  EXPECT_EQ(last.up[32 * 64], power(22));       // row 128
  EXPECT_EQ(last.down[0], power(9));
  EXPECT_EQ(last.down[63 * 96 + 95], power(11));
}

// 2I = H and both stacks square or not: the sibling decides, or else the family.
TEST(BindLayouts, ReadsSquareStacksAsTheirSiblingOrTheFamilyLies) {
  const Bound gpt_oss = bound(kModels / "gpt_oss");
  ASSERT_FALSE(gpt_oss.binding.experts.empty());
  EXPECT_EQ(gpt_oss.binding.experts[0][0].gate.codes.order, Order::kKFirst);
  EXPECT_EQ(gpt_oss.binding.experts[0][0].down.codes.order, Order::kKFirst);

  for (const bool transposed : {false, true}) {
    EditedCheckpoint checkpoint(kQuantised / "bf16_fused_cat_small");
    checkpoint.edit_config("\"moe_intermediate_size\": 96", "\"moe_intermediate_size\": 32");
    checkpoint.erase(kExperts + "gate_up_proj");
    checkpoint.erase(kExperts + "down_proj");
    checkpoint.add(kExperts + "gate_up_proj", Format::kBf16, {4, 64, 64});
    const std::uint64_t first = transposed ? 32 : 64;
    checkpoint.add(kExperts + "down_proj", Format::kBf16, {4, first, 96 - first});
    const auto binding = bind_folder(checkpoint.write());
    ASSERT_TRUE(binding) << to_string(binding.error());
    const Order wanted = transposed ? Order::kKFirst : Order::kRowsFirst;
    EXPECT_EQ(binding->experts[1][0].gate.codes.order, wanted);
    EXPECT_EQ(binding->experts[1][0].down.codes.order, wanted);
  }
}

TEST(BindLayouts, FindsRowsOfAnInterleavedStackWithoutMovingThem) {
  const auto folder = open_folder(kQuantised / "gptoss_mxfp4");
  ASSERT_TRUE(folder);
  const auto binding = folder->bind();
  ASSERT_TRUE(binding);
  const auto& blocks = **folder->index.want("model.layers.1.mlp.experts.gate_up_proj_blocks");
  const MatrixSource& up = binding->experts[1][2].up;  // 3 experts of 192 rows of 48 bytes
  EXPECT_EQ(up.codes.offset_bytes, blocks.file_offset + (2 * 192 + 1) * 48);
  EXPECT_EQ(up.codes.outer_stride_bytes, 2U * 48);
  EXPECT_EQ(up.row_origin, 1U);
  EXPECT_EQ(up.row_step, 2U);
  EXPECT_EQ(up.encoding, formats::kMxfp4);
  EXPECT_EQ(up.stored_scale_format, Format::kE8m0);
}

void add_prefix(EditedCheckpoint& checkpoint, const std::string& body, const std::string& head) {
  for (Tensor& tensor : checkpoint.tensors) {
    const bool is_body = tensor.name.rfind("model.", 0) == 0;
    tensor.name = is_body ? body + tensor.name.substr(6) : head + tensor.name;
  }
}

TEST(BindNames, MayStandBehindTheNamesOfAWrapper) {
  struct Prefixes {
    const char* body;
    const char* head;
  };
  for (const Prefixes& prefixes :
       {Prefixes{"model.language_model.", ""}, Prefixes{"language_model.model.", "language_model."},
        Prefixes{"", ""}}) {
    EditedCheckpoint checkpoint(kQuantised / "modelopt_nvfp4");
    add_prefix(checkpoint, prefixes.body, prefixes.head);
    const auto binding = bind_folder(checkpoint.write());
    ASSERT_TRUE(binding) << prefixes.body << to_string(binding.error());
    EXPECT_THAT(binding->notes, IsEmpty());
  }
}

TEST(BindNames, IgnoresWhatATextModelDoesNotNeedAndSaysSo) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  for (const char* name :
       {"model.visual.blocks.0.attn.qkv.weight", "model.visual.patch_embed.proj.bias",
        "mtp.layers.0.mlp.gate.weight", "model.layers.2.mlp.gate.weight",
        "model.layers.2.enorm.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.k_proj.k_scale", "model.layers.0.self_attn.v_scale"}) {
    checkpoint.add(name, Format::kF32, {2});
  }
  const auto binding = bind_folder(checkpoint.write());
  ASSERT_TRUE(binding) << to_string(binding.error());
  EXPECT_THAT(binding->ignored,
              ElementsAre(HasSubstr("inv_freq: 1 tensor"), HasSubstr("k_scale: 1 tensor"),
                          HasSubstr("v_scale: 1 tensor"), HasSubstr("model.visual.*: 2 tensors"),
                          HasSubstr("mtp.*: 1 tensor"),
                          HasSubstr("model.layers.{2 and above}.*: 2 tensors")));
}

TEST(BindNames, RefusesLayersThatTheConfigHasForgotten) {
  EditedCheckpoint checkpoint(kModels / "qwen3_moe");
  checkpoint.edit_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  const auto binding = bind_folder(checkpoint.write());
  ASSERT_FALSE(binding);
  EXPECT_EQ(binding.error().code, Code::kInvalidSource);
  EXPECT_THAT(binding.error().thing, HasSubstr("model.layers.1."));
}

TEST(BindNames, IgnoresScalesOfActivations) {
  const auto binding = bind_folder(kQuantised / "modelopt_nvfp4");
  ASSERT_TRUE(binding);
  EXPECT_THAT(binding->ignored, ElementsAre(HasSubstr("*.input_scale: 35 tensors")));
}

TEST(BindHead, OfATiedModelIsTheEmbeddingUnlessTheFileHasOne) {
  const auto slot = static_cast<std::size_t>(families::Role::kOutputHead);
  EditedCheckpoint tied(kModels / "qwen3_moe");
  tied.edit_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  const auto with_head = bind_folder(tied.write());
  ASSERT_TRUE(with_head) << to_string(with_head.error());
  EXPECT_TRUE(with_head->model.matrices[slot].present);
  EXPECT_THAT(with_head->notes, ElementsAre(HasSubstr("lm_head")));

  tied.erase("lm_head.weight");
  const auto without = bind_folder(tied.write());
  ASSERT_TRUE(without) << to_string(without.error());
  EXPECT_FALSE(without->model.matrices[slot].present);

  EditedCheckpoint untied(kModels / "qwen3_moe");
  untied.erase("lm_head.weight");
  const auto refused = bind_folder(untied.write());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().hint, HasSubstr("does not tie"));
}

TEST(BindNotes, NamesAMatrixThatTheSettingsCallUnquantised) {
  EditedCheckpoint checkpoint(kQuantised / "block_fp8");
  checkpoint.edit_config("\"lm_head\"", "\"lm_head\", \"model.layers.0.self_attn.q_proj\"");
  const auto binding = bind_folder(checkpoint.write());
  ASSERT_TRUE(binding) << to_string(binding.error());
  EXPECT_THAT(binding->notes, ElementsAre(HasSubstr("model.layers.0.self_attn.q_proj")));
  const auto slot = static_cast<std::size_t>(families::Role::kQuery);
  EXPECT_EQ(binding->layers[0].matrices[slot].encoding, formats::kFp8Block128);  // tensors win
}

// DeepSeek-V3's 58 MoE layers of 256 experts.
TEST(Binding, HoldsTheLargestModelsInSixteenMebibytes) {
  Binding binding;
  binding.layers.resize(58);
  binding.experts.resize(58);
  for (auto& layer : binding.experts) layer.resize(256);
  RecordProperty("held_bytes", std::to_string(binding.held_bytes()));
  EXPECT_LT(binding.held_bytes(), 16U * 1024 * 1024);
}

}  // namespace
}  // namespace lode::loader
