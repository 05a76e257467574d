// Every module of every golden folder: the index, the settings and the detection together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lode/checkpoint/hf_config.h"
#include "lode/checkpoint/linear_storage.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"

namespace lode::checkpoint {
namespace {

struct Folder {
  TensorIndex index;
  QuantConfig quant;
};

Folder open(std::string_view name) {
  const std::filesystem::path path = std::filesystem::path(LODE_GOLDEN_DIR) / std::string(name);
  Result<TensorIndex> index = open_index(path);
  EXPECT_TRUE(index.has_value()) << name;
  const Result<HfConfig> config = HfConfig::read(path);
  EXPECT_TRUE(config.has_value()) << name;
  Result<QuantConfig> quant = read_quant_config(path, *config);
  EXPECT_TRUE(quant.has_value()) << name;
  return {*std::move(index), *std::move(quant)};
}

StorageKind kind_of(const Folder& folder, std::string_view module, bool fused = false) {
  const auto storage = fused ? detect_fused(folder.index, module, folder.quant)
                             : detect_linear(folder.index, module, folder.quant);
  EXPECT_TRUE(storage.has_value()) << (storage ? "" : to_string(storage.error()));
  return storage ? storage->kind : StorageKind::kDense;
}

TEST(GoldenFolders, ExpertsAndAttentionAreStoredAsTheirNamesSay) {
  const std::vector<std::pair<std::string, StorageKind>> folders = {
      {"quantised/bf16_per_expert", StorageKind::kDense},
      {"quantised/bf16_per_expert_small", StorageKind::kDense},
      {"quantised/modelopt_nvfp4", StorageKind::kNvfp4ModelOpt},
      {"quantised/modelopt_fp8", StorageKind::kFp8Tensor},
      {"quantised/ct_nvfp4", StorageKind::kNvfp4CompressedTensors},
      {"quantised/ct_fp8_tensor", StorageKind::kFp8Tensor},
      {"quantised/ct_fp8_channel", StorageKind::kFp8Channel},
      {"quantised/ct_fp8_block", StorageKind::kFp8Block},
      {"quantised/block_fp8", StorageKind::kFp8Block},
      {"quantised/fbgemm_fp8_row", StorageKind::kFp8Channel},
      {"models/qwen3_moe", StorageKind::kDense},
  };
  for (const auto& [name, kind] : folders) {
    const Folder folder = open(name);
    EXPECT_EQ(kind_of(folder, "model.layers.1.mlp.experts.0.down_proj"), kind) << name;
    EXPECT_EQ(kind_of(folder, "model.layers.1.self_attn.q_proj"), kind) << name;
    EXPECT_EQ(kind_of(folder, "model.layers.1.mlp.gate"), StorageKind::kDense) << name;
  }
}

TEST(GoldenFolders, StacksAreStoredAsTheirNamesSay) {
  const std::vector<std::pair<std::string, StorageKind>> folders = {
      {"quantised/bf16_fused_cat_small", StorageKind::kDense},
      {"quantised/bf16_fused_transposed_small", StorageKind::kDense},
      {"quantised/gptoss_bf16_transposed", StorageKind::kDense},
      {"quantised/gptoss_mxfp4", StorageKind::kMxfp4},
      {"quantised/gptoss_modelopt_nvfp4", StorageKind::kNvfp4ModelOpt},
      {"models/gpt_oss", StorageKind::kDense},
  };
  for (const auto& [name, kind] : folders) {
    const Folder folder = open(name);
    EXPECT_EQ(kind_of(folder, "model.layers.1.mlp.experts.gate_up_proj", true), kind) << name;
    EXPECT_EQ(kind_of(folder, "model.layers.1.mlp.experts.down_proj", true), kind) << name;
  }
}

TEST(GoldenFolders, TheSquareMatrixOfGptOssIsPackedAlongItsMiddleAxis) {
  const Folder folder = open("quantised/gptoss_modelopt_nvfp4");
  const auto down =
      detect_fused(folder.index, "model.layers.1.mlp.experts.down_proj", folder.quant);
  ASSERT_TRUE(down.has_value());
  EXPECT_EQ(down->in_axis, InAxis::kMiddle);
  EXPECT_EQ(down->experts, 3U);
  EXPECT_EQ(down->rows, 96U);
  EXPECT_EQ(down->columns, 96U);
  EXPECT_NE(down->input_scale, nullptr);
  EXPECT_NE(down->bias, nullptr);
}

// The modules of a folder, from the names of its tensors alone.
std::map<std::string, bool> modules_of(const TensorIndex& index) {
  std::map<std::string, bool> modules;  // name -> whether it is a stack
  for (const TensorRecord& tensor : index.tensors()) {
    const std::string_view name = tensor.name;
    const auto stack = name.find(".experts.") != name.npos
                           ? std::min(name.find("gate_up_proj"), name.find("down_proj_"))
                           : name.npos;
    const bool is_stack = name.ends_with(".experts.down_proj") || stack != name.npos;
    if (is_stack) {
      const auto end = name.find("_proj", name.rfind('.')) + 5;
      modules[std::string(name.substr(0, end))] = true;
    } else if (name.find("norm") == name.npos && name.find("sinks") == name.npos) {
      modules[std::string(name.substr(0, name.rfind('.')))] = false;
    }
  }
  return modules;
}

TEST(GoldenFolders, EveryTensorBelongsToOneModuleAndNothingContradictsTheSettings) {
  std::size_t folders = 0;
  for (const char* set : {"/quantised", "/models"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(LODE_GOLDEN_DIR) + set)) {
      if (!entry.is_directory()) continue;
      const std::string name = std::string(set).substr(1) + "/" + entry.path().filename().string();
      const Folder folder = open(name);
      std::set<const TensorRecord*> used;
      for (const auto& [module, is_stack] : modules_of(folder.index)) {
        const auto storage = is_stack ? detect_fused(folder.index, module, folder.quant)
                                      : detect_linear(folder.index, module, folder.quant);
        ASSERT_TRUE(storage.has_value()) << name << ": " << to_string(storage.error());
        for (const TensorRecord* tensor : storage->tensors()) {
          EXPECT_TRUE(used.insert(tensor).second) << name << ": " << tensor->name;
        }
        if (module.find("embed_tokens") != module.npos) continue;  // no linear
        EXPECT_EQ(contradiction(*storage, module, folder.quant), std::nullopt) << name;
      }
      for (const TensorRecord& tensor : folder.index.tensors()) {
        const bool other = tensor.name.find("norm") != tensor.name.npos ||
                           tensor.name.find("sinks") != tensor.name.npos;
        EXPECT_TRUE(other || used.contains(&tensor)) << name << ": " << tensor.name;
      }
      ++folders;
    }
  }
  EXPECT_GE(folders, 17U);
}

TEST(GoldenFolders, SettingsThatDisagreeWithTheTensorsAreNamed) {
  const Folder plain = open("quantised/bf16_per_expert");
  const Folder quantised = open("quantised/modelopt_nvfp4");
  constexpr std::string_view kModule = "model.layers.1.mlp.experts.0.down_proj";
  const auto dense = detect_linear(plain.index, kModule, quantised.quant);
  ASSERT_TRUE(dense.has_value());
  EXPECT_EQ(contradiction(*dense, kModule, quantised.quant),
            std::string(kModule) + " is stored as BF16, the settings say that it is quantised");
  const auto nvfp4 = detect_linear(quantised.index, kModule, plain.quant);
  ASSERT_TRUE(nvfp4.has_value());
  EXPECT_EQ(contradiction(*nvfp4, kModule, plain.quant),
            std::string(kModule) +
                " is stored as nvfp4-modelopt, the settings say that it is not quantised");
}

}  // namespace
}  // namespace lode::checkpoint
