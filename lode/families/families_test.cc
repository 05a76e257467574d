#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include "lode/families/all.h"

namespace lode::families {
namespace {

using checkpoint::HfConfig;
using testing::HasSubstr;

const std::filesystem::path kGolden(LODE_GOLDEN_DIR);

// Made-up small configs; an edit puts a key before the others of its object, which lack it.
constexpr std::string_view kQwen =
    R"("model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64,
       "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 320,
       "max_position_embeddings": 512, "intermediate_size": 96, "moe_intermediate_size": 32,
       "num_experts": 8, "num_experts_per_tok": 2)";
constexpr std::string_view kGptOss =
    R"("model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 64,
       "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 320,
       "max_position_embeddings": 131072, "intermediate_size": 32, "num_local_experts": 8,
       "num_experts_per_tok": 2)";

Result<ModelSpec> spec_of(const std::string& text) {
  LODE_TRY(const HfConfig config, HfConfig::parse(text));
  LODE_TRY(const Family* const family, find_family(config));
  return family->read_spec(config);
}

// With `more` members, which end in a comma.
Result<ModelSpec> with(std::string_view base, const std::string& more) {
  return spec_of("{" + more + std::string(base) + "}");
}

// With one value put for another.
Result<ModelSpec> replaced(std::string_view base, std::string_view from, std::string_view to) {
  std::string text(base);
  text.replace(text.find(from), from.size(), to);
  return spec_of("{" + text + "}");
}

Error error_of(const Result<ModelSpec>& spec) {
  if (!spec) return spec.error();
  ADD_FAILURE() << "was read";
  return {};
}

TEST(Qwen3Moe, ReadsTheGoldenConfig) {
  const auto config = HfConfig::read(kGolden / "models/qwen3_moe");
  ASSERT_TRUE(config);
  const auto spec = qwen3_moe().read_spec(*config);
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_EQ(spec->num_layers, 2U);
  EXPECT_EQ(spec->hidden, 64U);
  EXPECT_EQ(spec->num_heads, 4U);
  EXPECT_EQ(spec->num_kv_heads, 2U);
  EXPECT_EQ(spec->head_dim, 24U);
  EXPECT_EQ(spec->expert_intermediate, 32U);
  EXPECT_EQ(spec->router.num_experts, 8U);
  EXPECT_EQ(spec->router.top_k, 2U);
  EXPECT_EQ(spec->router.score, Score::kSoftmax);
  EXPECT_TRUE(spec->router.renormalise);
  EXPECT_TRUE(spec->qk_norm);
  EXPECT_FALSE(spec->attention_bias);
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_EQ(spec->rope.kind, RopeKind::kDefault);
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_EQ(spec->rope.rotary_dim, 24U);
  EXPECT_FLOAT_EQ(spec->attention_scale, 1.0F / std::sqrt(24.0F));
  EXPECT_TRUE(spec->layers[0].moe && spec->layers[1].moe);
}

TEST(Qwen3Moe, FillsInTheDefaultsOfTheReference) {
  const auto spec = with(kQwen, "");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_FALSE(spec->router.renormalise);  // transformers Qwen3MoeConfig: norm_topk_prob false
  EXPECT_EQ(spec->num_kv_heads, 4U);
  EXPECT_EQ(spec->head_dim, 16U);
  EXPECT_FLOAT_EQ(spec->norm_eps, 1e-6F);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->activation, Activation::kSilu);
  EXPECT_EQ(spec->layers[3].window_tokens, 0U);
}

TEST(Qwen3Moe, HasDenseLayersWhereNamedAndOffTheStep) {
  const auto spec = with(kQwen, R"("decoder_sparse_step": 2, "mlp_only_layers": [3],)");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_FALSE(spec->layers[0].moe);
  EXPECT_TRUE(spec->layers[1].moe);
  EXPECT_FALSE(spec->layers[2].moe);
  EXPECT_FALSE(spec->layers[3].moe);
  EXPECT_EQ(spec->intermediate, 96U);
}

TEST(Qwen3Moe, SlidesAllLayersOrNone) {
  const auto on = with(kQwen, R"("use_sliding_window": true, "sliding_window": 100,)");
  ASSERT_TRUE(on);
  for (const LayerSpec& layer : on->layers) EXPECT_EQ(layer.window_tokens, 100U);
  const auto off = with(kQwen, R"("use_sliding_window": false, "sliding_window": 100,)");
  ASSERT_TRUE(off);
  for (const LayerSpec& layer : off->layers) EXPECT_EQ(layer.window_tokens, 0U);
}

TEST(Qwen3Moe, PutsBiasesOnAllFourAttentionMatrices) {
  const auto spec = with(kQwen, R"("attention_bias": true,)");
  ASSERT_TRUE(spec);
  EXPECT_TRUE(spec->attention_bias);
  EXPECT_TRUE(spec->output_bias);
}

TEST(Qwen3Moe, IsFoundInsideAWrapper) {
  const auto spec = spec_of(R"({"model_type": "wrapper", "architectures": ["Wrapper"],)"
                            R"( "hidden_size": 7, "text_config": {)" +
                            std::string(kQwen) + "}}");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_EQ(spec->hidden, 64U);
}

TEST(Qwen3Moe, ReadsBothFormsOfRope) {
  const std::string scaling =
      R"("factor": 4.0, "original_max_position_embeddings": 128, "attention_factor": 1.5)";
  const auto old_form =
      with(kQwen, R"("rope_theta": 5e5, "rope_scaling": {"type": "yarn", )" + scaling + "},");
  const auto new_form = with(
      kQwen, R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "yarn", )" + scaling + "},");
  ASSERT_TRUE(old_form) << to_string(old_form.error());
  ASSERT_TRUE(new_form) << to_string(new_form.error());
  EXPECT_EQ(old_form->rope, new_form->rope);
  EXPECT_EQ(new_form->rope.kind, RopeKind::kYarn);
  EXPECT_EQ(new_form->rope.theta, 5e5);
  EXPECT_EQ(new_form->rope.factor, 4.0);
  EXPECT_EQ(new_form->rope.original_max_positions, 128.0);
  EXPECT_EQ(new_form->rope.attention_factor, 1.5);
  EXPECT_TRUE(new_form->rope.truncate);
}

TEST(Qwen3Moe, ReadsLlama3Rope) {
  const auto spec = with(kQwen, R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192},)");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_EQ(spec->rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(spec->rope.factor, 8.0);
  EXPECT_EQ(spec->rope.low_freq_factor, 1.0);
  EXPECT_EQ(spec->rope.high_freq_factor, 4.0);
  EXPECT_EQ(spec->rope.original_max_positions, 8192.0);
}

TEST(Qwen3Moe, TakesTheYarnFactorFromThePositionsWhereItIsAbsent) {
  const auto spec = with(kQwen, R"("rope_scaling": {"rope_type": "yarn",
      "original_max_position_embeddings": 128},)");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_EQ(spec->rope.factor, 4.0);
}

TEST(GptOss, ReadsTheGoldenConfig) {
  const auto config = HfConfig::read(kGolden / "models/gpt_oss");
  ASSERT_TRUE(config);
  const auto spec = gpt_oss().read_spec(*config);
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_EQ(spec->expert_intermediate, 32U);
  EXPECT_EQ(spec->router.score, Score::kTopKSoftmax);
  EXPECT_EQ(spec->activation, Activation::kSwigluOai);
  EXPECT_FLOAT_EQ(spec->activation_limit, 2.0F);
  EXPECT_FLOAT_EQ(spec->activation_alpha, 1.702F);
  EXPECT_EQ(spec->layers[0].window_tokens, 16U);
  EXPECT_EQ(spec->layers[1].window_tokens, 0U);
  EXPECT_EQ(spec->rope.kind, RopeKind::kYarn);
  EXPECT_EQ(spec->rope.theta, 150000.0);
  EXPECT_EQ(spec->rope.factor, 32.0);
  EXPECT_EQ(spec->rope.original_max_positions, 4096.0);
  EXPECT_FALSE(spec->rope.truncate);
  EXPECT_TRUE(spec->attention_bias && spec->output_bias && spec->attention_sinks &&
              spec->router_bias && spec->expert_bias);
  EXPECT_FALSE(spec->qk_norm);
}

TEST(GptOss, FillsInTheDefaultsOfTheReference) {
  const auto spec = with(kGptOss, "");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_FLOAT_EQ(spec->activation_limit, 7.0F);
  EXPECT_FLOAT_EQ(spec->norm_eps, 1e-5F);
  EXPECT_TRUE(spec->attention_bias);
  EXPECT_EQ(spec->layers[0].window_tokens, 128U);  // the first one slides
  EXPECT_EQ(spec->layers[1].window_tokens, 0U);
  EXPECT_EQ(spec->layers[2].window_tokens, 128U);
  EXPECT_EQ(spec->rope.kind, RopeKind::kYarn);  // GptOssConfig fills in the released settings
  EXPECT_EQ(spec->rope.factor, 32.0);
  EXPECT_FALSE(spec->rope.truncate);
}

struct BadConfig {
  std::string_view base;
  const char* from;
  const char* to;
  Code code;
  const char* names;
};

class ImpossibleConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(ImpossibleConfig, IsRefusedNamingTheKey) {
  const BadConfig& bad = GetParam();
  const Error error = error_of(replaced(bad.base, bad.from, bad.to));
  EXPECT_EQ(error.code, bad.code) << to_string(error);
  EXPECT_THAT(to_string(error), HasSubstr(bad.names));
}

constexpr Code kInvalid = Code::kInvalidSource;
constexpr Code kUnknown = Code::kUnsupported;
INSTANTIATE_TEST_SUITE_P(
    Sizes, ImpossibleConfig,
    testing::Values(
        BadConfig{kQwen, R"("hidden_size": 64)", R"("hidden_size": 0)", kInvalid, "hidden_size"},
        BadConfig{kQwen, R"("hidden_size": 64)", R"("hidden_size": -1)", kInvalid, "hidden_size"},
        BadConfig{kQwen, R"("hidden_size": 64)", R"("hidden_size": "x")", kInvalid, "hidden_size"},
        BadConfig{kQwen, R"("hidden_size": 64)", R"("hidden_size": 65)", kInvalid, "head_dim"},
        BadConfig{kQwen, R"("hidden_size": 64,)", "", kInvalid, "hidden_size"},
        BadConfig{kQwen, R"("num_hidden_layers": 4)", R"("num_hidden_layers": 1000000)", kInvalid,
                  "num_hidden_layers"},
        BadConfig{kQwen, R"("vocab_size": 320)", R"("vocab_size": 4000000000)", kInvalid,
                  "vocab_size"},
        BadConfig{kQwen, R"("vocab_size": 320)", R"("num_key_value_heads": 3, "vocab_size": 320)",
                  kInvalid, "num_key_value_heads"},
        BadConfig{kQwen, R"("vocab_size": 320)", R"("num_key_value_heads": 8, "vocab_size": 320)",
                  kInvalid, "num_key_value_heads"},
        BadConfig{kQwen, R"("vocab_size": 320)", R"("head_dim": 65538, "vocab_size": 320)",
                  kInvalid, "head_dim"},
        BadConfig{kQwen, R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 9)", kInvalid,
                  "num_experts_per_tok"},
        BadConfig{kQwen, R"("num_experts": 8)", R"("num_experts": 100000)", kInvalid,
                  "num_experts"},
        BadConfig{kQwen, R"("moe_intermediate_size": 32)", R"("moe_intermediate_size": 16777217)",
                  kInvalid, "moe_intermediate_size"},
        BadConfig{kGptOss, R"("vocab_size": 320)",
                  R"("layer_types": ["full_attention"], "vocab_size": 320)", kInvalid,
                  "layer_types"}));

INSTANTIATE_TEST_SUITE_P(
    Settings, ImpossibleConfig,
    testing::Values(
        BadConfig{kQwen, R"("vocab_size")", R"("hidden_act": "relu2", "vocab_size")", kUnknown,
                  "hidden_act"},
        BadConfig{kQwen, R"("vocab_size")",
                  R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "vocab_size")",
                  kUnknown, "rope_type"},
        BadConfig{kQwen, R"("vocab_size")",
                  R"("rope_scaling": {"rope_type": "linear"}, "vocab_size")", kInvalid, "factor"},
        BadConfig{kQwen, R"("vocab_size")",
                  R"("rope_scaling": {"rope_type": "linear", "factor": 0}, "vocab_size")", kInvalid,
                  "factor"},
        BadConfig{kQwen, R"("vocab_size")",
                  R"("rope_scaling": {"rope_type": "llama3", "factor": 8}, "vocab_size")", kInvalid,
                  "low_freq_factor"},
        BadConfig{kQwen, R"("vocab_size")",
                  R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                      "high_freq_factor": 1}, "vocab_size")",
                  kInvalid, "high_freq_factor"},
        BadConfig{kQwen, R"("vocab_size")", R"("rope_theta": -1, "vocab_size")", kInvalid,
                  "rope_theta"},
        BadConfig{kQwen, R"("vocab_size")", R"("partial_rotary_factor": 0.01, "vocab_size")",
                  kInvalid, "partial_rotary_factor"},
        BadConfig{kQwen, R"("vocab_size")", R"("partial_rotary_factor": 2, "vocab_size")", kInvalid,
                  "partial_rotary_factor"},
        BadConfig{kQwen, R"("vocab_size")", R"("rms_norm_eps": 0, "vocab_size")", kInvalid,
                  "rms_norm_eps"},
        BadConfig{kQwen, R"("vocab_size")", R"("use_sliding_window": true, "vocab_size")", kInvalid,
                  "sliding_window"},
        BadConfig{kGptOss, R"("vocab_size")", R"("swiglu_limit": -7, "vocab_size")", kInvalid,
                  "swiglu_limit"},
        BadConfig{kGptOss, R"("vocab_size")",
                  R"("layer_types": ["full_attention", "full_attention", "full_attention",
                      "linear_attention"], "vocab_size")",
                  kUnknown, "layer_types[3]"},
        BadConfig{kGptOss, R"("vocab_size")",
                  R"("rope_parameters": {"full_attention": {"rope_type": "default"},
                      "sliding_attention": {"rope_type": "default", "rope_theta": 9}},
                      "vocab_size")",
                  kUnknown, "rope_parameters"}));

TEST(FindFamily, NamesAnUnknownArchitectureAndTheKnownOnes) {
  const auto config =
      HfConfig::parse(R"({"model_type": "mamba", "architectures": ["MambaForCausalLM"]})");
  ASSERT_TRUE(config);
  const auto family = find_family(*config);
  ASSERT_FALSE(family);
  EXPECT_EQ(family.error().code, Code::kUnsupported);
  EXPECT_THAT(family.error().found, HasSubstr("MambaForCausalLM"));
  EXPECT_THAT(family.error().wanted, HasSubstr("Qwen3MoeForCausalLM, GptOssForCausalLM"));
}

TEST(FindFamily, RefusesATypeAndAnArchitectureOfTwoFamilies) {
  const auto config =
      HfConfig::parse(R"({"model_type": "gpt_oss", "architectures": ["Qwen3MoeForCausalLM"]})");
  ASSERT_TRUE(config);
  const auto family = find_family(*config);
  ASSERT_FALSE(family);
  EXPECT_EQ(family.error().code, Code::kInvalidSource);
}

TEST(Roles, HaveDistinctNames) {
  std::set<std::string_view> names;
  for (std::size_t row = 0; row < kNumRoles; ++row) names.insert(name(static_cast<Role>(row)));
  EXPECT_EQ(names.size(), kNumRoles);
}

TEST(Families, HaveAModuleForEveryRoleOfTheirModels) {
  for (const auto& base : {kQwen, kGptOss}) {
    const auto spec = with(base, R"("attention_bias": true, "mlp_only_layers": [0],)");
    ASSERT_TRUE(spec);
    const auto config = HfConfig::parse("{" + std::string(base) + "}");
    const Family& family = **find_family(*config);
    for (std::size_t row = 0; row < kNumRoles; ++row) {
      const auto role = static_cast<Role>(row);
      if (!has_role(*spec, role, 0) && !has_role(*spec, role, 1)) continue;
      const auto fits = [&](const ModulePattern& pattern) { return pattern.role == role; };
      EXPECT_EQ(std::count_if(family.modules.begin(), family.modules.end(), fits), 1) << name(role);
    }
  }
}

TEST(KvCache, CountsWindowsAsRings) {
  const auto spec = with(kGptOss, "");  // layers 0 and 2 slide over 128, 4 kv heads of 16
  ASSERT_TRUE(spec);
  constexpr std::uint64_t kPerToken = 2 * 4 * 16 * 2;  // keys and values in two bytes
  EXPECT_EQ(kv_cache_bytes(*spec, 100, 2), 4 * 100 * kPerToken);
  EXPECT_EQ(kv_cache_bytes(*spec, 1000, 2), 2 * (1000 + 128) * kPerToken);
  EXPECT_EQ(kv_cache_bytes(*spec, std::numeric_limits<std::uint64_t>::max() / 2, 4),
            std::numeric_limits<std::uint64_t>::max());
}

}  // namespace
}  // namespace lode::families
