#include "lode/families/router_table.h"

#include <algorithm>
#include <array>

namespace lode::families {
namespace {

constexpr RouterSpec kSoftmaxAll{.score = Score::kSoftmax};
constexpr RouterSpec kSoftmaxDivided{.score = Score::kSoftmax, .renormalise = true};
constexpr RouterSpec kChosenSoftmax{.score = Score::kTopKSoftmax};
constexpr RouterSpec kSigmoidDivided{.score = Score::kSigmoid, .renormalise = true};
constexpr RouterSpec kSigmoidBiased{
    .score = Score::kSigmoid, .selection_bias = true, .renormalise = true};
constexpr RouterFromConfig kAsDeepseekV3{.renormalise = true, .groups = true, .scaling = true};

constexpr RouterSpec scaled(RouterSpec spec, float scaling) {
  spec.scaling = scaling;
  return spec;
}

constexpr std::array kRows{
    RouterRow{"mixtral", kSoftmaxDivided, {}},
    RouterRow{"olmoe", kSoftmaxAll, {.renormalise = true}},
    RouterRow{"qwen2_moe", kSoftmaxAll, {.renormalise = true}},
    RouterRow{"qwen3_moe", kSoftmaxDivided, {.renormalise = true}},
    RouterRow{"qwen3_next", kSoftmaxDivided, {.renormalise = true}},
    RouterRow{"qwen3_5_moe", kSoftmaxDivided, {}},
    RouterRow{"gpt_oss", kChosenSoftmax, {}},
    RouterRow{"granitemoe", kChosenSoftmax, {}},
    // The choice is made on the logits, as it is of every score without a bias.
    RouterRow{"llama4", {.score = Score::kSigmoid, .weight_on_input = true}, {}},
    RouterRow{"deepseek_v2", kSoftmaxAll, {.renormalise = true, .groups = true, .scaling = true}},
    RouterRow{"deepseek_v3", scaled(kSigmoidBiased, 2.5F), kAsDeepseekV3},
    // Some layers take ids from a table: MoeLayer::expert_table.
    RouterRow{"deepseek_v4",
              {.score = Score::kSqrtSoftplus, .selection_bias = true, .renormalise = true},
              {.scaling = true}},
    RouterRow{"glm4_moe", kSigmoidBiased, kAsDeepseekV3},
    RouterRow{"glm4_moe_lite", kSigmoidBiased, kAsDeepseekV3},
    RouterRow{"ernie4_5_moe",
              {.score = Score::kSoftmax,
               .selection_bias = true,
               .renormalise = true,
               .norm_floor = 1e-12},
              {.norm = true}},
    RouterRow{"hunyuan_v1_moe", kSoftmaxDivided, {}},
    RouterRow{"afmoe", kSigmoidBiased, kAsDeepseekV3},
    RouterRow{"step3p5", scaled(kSigmoidBiased, 3.0F), {.renormalise = true, .scaling = true}},
    RouterRow{"minimax_m2", kSigmoidBiased, {.selection_bias = true}},
    RouterRow{"cohere2_moe", kSigmoidDivided, {.renormalise = true}},
    RouterRow{"gemma4", {.score = Score::kSoftmax, .renormalise = true, .expert_scale = true}, {}},
    RouterRow{"longcat_flash",
              scaled({.score = Score::kSoftmax, .selection_bias = true}, 6.0F),
              {.scaling = true}},
    RouterRow{"phimoe", {.score = Score::kSparseMixer, .top_k = 2}, {}},
    RouterRow{"dbrx", kSoftmaxDivided, {.renormalise = true, .norm = true}},
    RouterRow{"jamba", kSoftmaxAll, {}},
    RouterRow{
        "lfm2_moe",
        {.score = Score::kSigmoid, .selection_bias = true, .renormalise = true, .norm_add = 1e-6},
        {.selection_bias = true, .renormalise = true, .scaling = true}},
    RouterRow{"mimo_v2_flash", kSigmoidBiased, kAsDeepseekV3},
    RouterRow{"solar_open", kSigmoidBiased, kAsDeepseekV3},
    RouterRow{"exaone_moe", kSigmoidBiased, kAsDeepseekV3},
    RouterRow{"bailing_hybrid", kSigmoidBiased, kAsDeepseekV3},
};

}  // namespace

std::span<const RouterRow> router_rows() noexcept { return kRows; }

const RouterRow* find_router_row(std::string_view family) noexcept {
  const auto at = std::find_if(kRows.begin(), kRows.end(),
                               [&](const RouterRow& row) { return row.family == family; });
  return at == kRows.end() ? nullptr : &*at;
}

}  // namespace lode::families
