#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "lode/json/json.h"
#include "lode/loader/bind_test_support.h"

namespace lode::loader {
namespace {

using families::Role;

const std::filesystem::path kGolden(LODE_GOLDEN_DIR);

json::Value golden_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "golden.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto value = json::parse(text);
  EXPECT_TRUE(value) << folder;
  return *std::move(value);
}

// The numbers behind a name of golden.json, asked of the roles rather than of the file.
class ByName {
 public:
  ByName(const OpenedFolder& folder, const Binding& binding)
      : folder_(folder), binding_(binding), numbers_(folder.index) {}

  std::optional<std::vector<float>> find(std::string_view name,
                                         const std::vector<std::uint64_t>& shape) const {
    const std::string module = module_of(name);
    const bool bias = name.ends_with("bias");
    if (auto stack = stacked(module, bias, shape)) return stack;
    for (const families::ModulePattern& pattern : folder_.family->modules) {
      if ((families::info(pattern.role).part == families::Part::kBias) != bias) continue;
      if (auto found = by_pattern(pattern, module)) return found;
    }
    return std::nullopt;
  }

 private:
  static std::string module_of(std::string_view name) {
    for (const std::string_view ending : {".weight", ".bias", "_bias"}) {
      if (name.ends_with(ending)) name.remove_suffix(ending.size());
    }
    if (name.starts_with("model.")) name.remove_prefix(6);
    return std::string(name);
  }

  static std::string expand(std::string text, std::string_view mark, std::size_t number) {
    const std::size_t at = text.find(mark);
    return at == std::string::npos ? text : text.replace(at, mark.size(), std::to_string(number));
  }

  std::optional<std::vector<float>> from(const RoleSources& sources, Role role) const {
    const auto slot = static_cast<std::size_t>(role);
    if (sources.matrices[slot].present) return numbers_.matrix(sources.matrices[slot]);
    if (sources.vectors[slot].present) return numbers_.vector(sources.vectors[slot]);
    return std::nullopt;
  }

  static const MatrixSource& of_expert(const ExpertSource& expert, Role role) {
    if (role == Role::kExpertGate) return expert.gate;
    return role == Role::kExpertUp ? expert.up : expert.down;
  }

  std::optional<std::vector<float>> by_pattern(const families::ModulePattern& pattern,
                                               const std::string& module) const {
    if (families::scope(pattern.role) == families::Scope::kModel && pattern.module == module) {
      return from(binding_.model, pattern.role);
    }
    for (std::size_t layer = 0; layer < binding_.layers.size(); ++layer) {
      const std::string name = expand(std::string(pattern.module), "{layer}", layer);
      if (name == module) return from(binding_.layers[layer], pattern.role);
      if (families::scope(pattern.role) != families::Scope::kExpert) continue;
      for (std::size_t expert = 0; expert < binding_.experts[layer].size(); ++expert) {
        if (expand(name, "{expert}", expert) != module) continue;
        return numbers_.matrix(of_expert(binding_.experts[layer][expert], pattern.role));
      }
    }
    return std::nullopt;
  }

  // One expert's gate and up rows in the order of the family, and as [out, in].
  std::vector<float> joined(const std::vector<float>& gate, const std::vector<float>& up,
                            std::size_t width) const {
    std::vector<float> both;
    const std::size_t rows = gate.size() / width;
    for (std::size_t row = 0; row < 2 * rows; ++row) {
      const bool interleaved = folder_.family->stacked.interleaved;
      const bool is_up = interleaved ? row % 2 == 1 : row >= rows;
      const std::size_t own = interleaved ? row / 2 : row % rows;
      const auto& from = is_up ? up : gate;
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(own * width);
      both.insert(both.end(), first, first + static_cast<std::ptrdiff_t>(width));
    }
    return both;
  }

  static std::vector<float> turned(const std::vector<float>& matrix, std::size_t columns) {
    std::vector<float> result;
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t at = column; at < matrix.size(); at += columns) result.push_back(matrix[at]);
    }
    return result;
  }

  std::optional<std::vector<float>> stacked(const std::string& module, bool bias,
                                            const std::vector<std::uint64_t>& shape) const {
    for (std::size_t layer = 0; layer < binding_.layers.size(); ++layer) {
      const std::string start = "layers." + std::to_string(layer) + ".";
      const bool wide = module == start + std::string(folder_.family->stacked.gate_up);
      if (!wide && module != start + std::string(folder_.family->stacked.down)) continue;
      std::vector<float> all;
      for (const ExpertSource& expert : binding_.experts[layer]) {
        const auto one = bias ? bias_of(expert, wide) : matrix_of(expert, wide, shape);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    }
    return std::nullopt;
  }

  std::vector<float> bias_of(const ExpertSource& expert, bool wide) const {
    if (!wide) return numbers_.vector(expert.down_bias);
    return joined(numbers_.vector(expert.gate_bias), numbers_.vector(expert.up_bias), 1);
  }

  std::vector<float> matrix_of(const ExpertSource& expert, bool wide,
                               const std::vector<std::uint64_t>& shape) const {
    std::vector<float> one =
        wide ? joined(numbers_.matrix(expert.gate), numbers_.matrix(expert.up), expert.gate.k)
             : numbers_.matrix(expert.down);
    const std::size_t in = wide ? expert.gate.k : expert.down.k;
    const bool by_in = folder_.family->stacked.transposed || (shape[1] == in && shape[2] != in);
    return by_in ? turned(one, in) : one;
  }

  const OpenedFolder& folder_;
  const Binding& binding_;
  BoundNumbers numbers_;
};

std::vector<std::uint64_t> shape_of(const json::Value& weight) {
  std::vector<std::uint64_t> shape;
  for (const json::Value& extent : *weight.find("shape")->as_array()) {
    shape.push_back(static_cast<std::uint64_t>(*extent.as_int()));
  }
  return shape;
}

std::uint32_t crc_in(const json::Value& digests) {
  return static_cast<std::uint32_t>(*digests.find("crc32")->as_int());
}

class GoldenFolder : public testing::TestWithParam<const char*> {};

TEST_P(GoldenFolder, BindsAndItsNumbersAreTheProducers) {
  const auto folder = open_folder(kGolden / "quantised" / GetParam());
  ASSERT_TRUE(folder) << to_string(folder.error());
  const auto binding = folder->bind();
  ASSERT_TRUE(binding) << to_string(binding.error());
  EXPECT_THAT(binding->notes, testing::IsEmpty());

  const ByName numbers(*folder, *binding);
  const json::Value golden = golden_of(kGolden / "quantised" / GetParam());
  const auto& weights = *golden.find("weights")->as_object();
  ASSERT_FALSE(weights.empty());
  for (const auto& [name, weight] : weights) {
    const auto found = numbers.find(name, shape_of(weight));
    ASSERT_TRUE(found) << name;
    if (const json::Value* const single = weight.find("float32")) {
      EXPECT_EQ(crc32_of_f32(*found), crc_in(*single)) << name;
    } else {
      EXPECT_EQ(crc32_of_bf16(*found), crc_in(*weight.find("bf16"))) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Quantised, GoldenFolder,
                         testing::Values("bf16_per_expert", "bf16_per_expert_small",
                                         "bf16_fused_cat_small", "bf16_fused_transposed_small",
                                         "gptoss_mxfp4", "gptoss_modelopt_nvfp4",
                                         "gptoss_bf16_transposed", "modelopt_nvfp4", "modelopt_fp8",
                                         "ct_nvfp4", "ct_fp8_block", "ct_fp8_channel",
                                         "ct_fp8_tensor", "block_fp8", "fbgemm_fp8_row"),
                         [](const auto& folder) { return std::string(folder.param); });

TEST(Bind, BindsTheGoldenModels) {
  for (const char* family : {"qwen3_moe", "gpt_oss"}) {
    const auto binding = bind_folder(kGolden / "models" / family);
    ASSERT_TRUE(binding) << to_string(binding.error());
    EXPECT_THAT(binding->ignored, testing::IsEmpty());
  }
}

}  // namespace
}  // namespace lode::loader
