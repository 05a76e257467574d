#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lode/json/json.h"
#include "lode/layout/unpack.h"
#include "lode/loader/bind_test_support.h"
#include "lode/loader/execute.h"

namespace lode::loader {
namespace {

using families::Role;
using tensor::TensorView;

const std::filesystem::path kQuantised = std::filesystem::path(LODE_GOLDEN_DIR) / "quantised";

// A golden folder, bound and loaded.
struct Golden {
  explicit Golden(const std::string& name) : folder(*open_folder(kQuantised / name)) {
    binding = *folder.bind();
    const LoadPlan plan = *plan_load(binding, folder.spec, folder.index, {});
    auto loaded = execute(plan, binding, ledger, **make_engine(plan));
    EXPECT_TRUE(loaded) << to_string(loaded.error());
    if (loaded) weights = *std::move(loaded);
  }

  OpenedFolder folder;
  Binding binding;
  memory::Ledger ledger{kGiB};
  WeightSet weights;
};

std::vector<float> decoded(const TensorView& view, std::uint32_t matrix) {
  const tensor::Shape& shape = view.shape();
  std::vector<float> all;
  if (view.meta().layout == tensor::Layout::kRowMajor) {
    for (std::uint64_t i = 0; i < shape.elements(); ++i) {
      all.push_back(formats::number_at(view.meta().encoding.element, view.bytes(), i));
    }
    return all;
  }
  const bool pair = view.meta().layout == tensor::Layout::kGateUpPanels;
  const auto layout = *layout::PanelLayout::make(view.meta().encoding, shape[pair ? 1 : 0],
                                                 shape[pair ? 2 : 1], pair ? 2 : 1);
  std::vector<float> row(layout.k());
  for (std::uint64_t r = 0; r < layout.rows(); ++r) {
    layout::decode_panel_row(layout, matrix, view.bytes(), r, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

class GoldenLoad : public testing::TestWithParam<const char*> {};

// BoundNumbers equals the producers' digests (bind_golden_test), so what equals it does so too.
TEST_P(GoldenLoad, HoldsTheProducersNumbersInEveryPlace) {
  const Golden golden(GetParam());
  const BoundNumbers numbers(golden.folder.index);
  const auto check = [&](const RoleSources& sources, const auto& view_of) {
    for (std::size_t i = 0; i < families::kNumRoles; ++i) {
      const auto role = static_cast<Role>(i);
      const bool up = role == Role::kMlpUp;
      if (sources.matrices[i].present) {
        EXPECT_EQ(decoded(view_of(up ? Role::kMlpGate : role), up ? 1 : 0),
                  numbers.matrix(sources.matrices[i]))
            << families::name(role);
      } else if (sources.vectors[i].present) {
        EXPECT_EQ(decoded(view_of(role), 0), numbers.vector(sources.vectors[i]));
      }
    }
  };
  check(golden.binding.model, [&](Role role) { return golden.weights.model_weight(role); });
  for (std::uint32_t layer = 0; layer < golden.binding.layers.size(); ++layer) {
    check(golden.binding.layers[layer],
          [&](Role role) { return golden.weights.layer_weight(layer, role); });
    for (std::size_t e = 0; e < golden.binding.experts[layer].size(); ++e) {
      const ExpertSource& source = golden.binding.experts[layer][e];
      const layout::ExpertViews views = golden.weights.experts(layer).expert(e);
      EXPECT_EQ(decoded(views.gate_up, 0), numbers.matrix(source.gate));
      EXPECT_EQ(decoded(views.gate_up, 1), numbers.matrix(source.up));
      EXPECT_EQ(decoded(views.down, 0), numbers.matrix(source.down));
      if (!source.gate_bias.present) continue;
      EXPECT_EQ(decoded(views.gate_bias, 0), numbers.vector(source.gate_bias));
      EXPECT_EQ(decoded(views.up_bias, 0), numbers.vector(source.up_bias));
      EXPECT_EQ(decoded(views.down_bias, 0), numbers.vector(source.down_bias));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Quantised, GoldenLoad,
                         testing::Values("bf16_per_expert", "bf16_per_expert_small",
                                         "bf16_fused_cat_small", "bf16_fused_transposed_small",
                                         "gptoss_mxfp4", "gptoss_modelopt_nvfp4",
                                         "gptoss_bf16_transposed", "modelopt_nvfp4", "modelopt_fp8",
                                         "ct_nvfp4", "ct_fp8_block", "ct_fp8_channel",
                                         "ct_fp8_tensor", "block_fp8", "fbgemm_fp8_row"),
                         [](const auto& folder) { return std::string(folder.param); });

// Straight against the producers' digests, without any other reading of the file.
TEST(GoldenDigest, OfEveryExpertsDownProjectionIsThatOfItsPanels) {
  for (const char* name : {"modelopt_nvfp4", "ct_nvfp4", "block_fp8", "ct_fp8_channel"}) {
    const Golden golden(name);
    std::ifstream file(kQuantised / name / "golden.json", std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto json = *json::parse(text);
    const ExpertBank& bank = golden.weights.experts(1);
    ASSERT_GT(bank.num_experts, 0U);
    for (std::uint64_t e = 0; e < bank.num_experts; ++e) {
      const auto* const want =
          json.find("weights")
              ->find("model.layers.1.mlp.experts." + std::to_string(e) + ".down_proj.weight")
              ->find("float32")
              ->find("crc32");
      EXPECT_EQ(crc32_of_f32(decoded(bank.expert(e).down, 0)),
                static_cast<std::uint32_t>(*want->as_int()))
          << name << " expert " << e;
    }
  }
}

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.meta() == b.meta() && std::ranges::equal(a.bytes(), b.bytes());
}

TEST(StorageVariants, OfOneModelGiveTheSameBytes) {
  const Golden first("bf16_per_expert_small");
  for (const char* name : {"bf16_fused_cat_small", "bf16_fused_transposed_small"}) {
    const Golden other(name);
    for (std::size_t i = 0; i < families::kNumRoles; ++i) {
      const auto role = static_cast<Role>(i);
      EXPECT_TRUE(same_bytes(first.weights.model_weight(role), other.weights.model_weight(role)));
      for (std::uint32_t layer = 0; layer < first.binding.layers.size(); ++layer) {
        EXPECT_TRUE(same_bytes(first.weights.layer_weight(layer, role),
                               other.weights.layer_weight(layer, role)))
            << families::name(role);
      }
    }
    EXPECT_EQ(first.weights.experts(1).record, other.weights.experts(1).record);
    EXPECT_TRUE(std::ranges::equal(first.weights.experts(1).bytes, other.weights.experts(1).bytes));
  }
}

}  // namespace
}  // namespace lode::loader
