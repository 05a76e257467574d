#include "lode/families/roles.h"

#include <array>

#include "lode/base/check.h"

namespace lode::families {
namespace {

constexpr std::array<RoleInfo, kNumRoles> kRoles{{
    {Role::kTokenEmbedding, Scope::kModel, Part::kMatrix, "token_embedding"},
    {Role::kFinalNorm, Scope::kModel, Part::kNormWeight, "final_norm"},
    {Role::kOutputHead, Scope::kModel, Part::kMatrix, "output_head"},
    {Role::kAttentionNorm, Scope::kLayer, Part::kNormWeight, "attention_norm"},
    {Role::kQuery, Scope::kLayer, Part::kMatrix, "query"},
    {Role::kKey, Scope::kLayer, Part::kMatrix, "key"},
    {Role::kValue, Scope::kLayer, Part::kMatrix, "value"},
    {Role::kAttentionOutput, Scope::kLayer, Part::kMatrix, "attention_output"},
    {Role::kQueryBias, Scope::kLayer, Part::kBias, "query_bias"},
    {Role::kKeyBias, Scope::kLayer, Part::kBias, "key_bias"},
    {Role::kValueBias, Scope::kLayer, Part::kBias, "value_bias"},
    {Role::kAttentionOutputBias, Scope::kLayer, Part::kBias, "attention_output_bias"},
    {Role::kQueryNorm, Scope::kLayer, Part::kNormWeight, "query_norm"},
    {Role::kKeyNorm, Scope::kLayer, Part::kNormWeight, "key_norm"},
    {Role::kAttentionSinks, Scope::kLayer, Part::kBare, "attention_sinks"},
    {Role::kMlpNorm, Scope::kLayer, Part::kNormWeight, "mlp_norm"},
    {Role::kRouter, Scope::kLayer, Part::kMatrix, "router"},
    {Role::kRouterBias, Scope::kLayer, Part::kBias, "router_bias"},
    {Role::kRouterSelectionBias, Scope::kLayer, Part::kBare, "router_selection_bias"},
    {Role::kMlpGate, Scope::kLayer, Part::kMatrix, "mlp_gate"},
    {Role::kMlpUp, Scope::kLayer, Part::kMatrix, "mlp_up"},
    {Role::kMlpDown, Scope::kLayer, Part::kMatrix, "mlp_down"},
    {Role::kExpertGate, Scope::kExpert, Part::kMatrix, "expert_gate"},
    {Role::kExpertUp, Scope::kExpert, Part::kMatrix, "expert_up"},
    {Role::kExpertDown, Scope::kExpert, Part::kMatrix, "expert_down"},
    {Role::kExpertGateBias, Scope::kExpert, Part::kBias, "expert_gate_bias"},
    {Role::kExpertUpBias, Scope::kExpert, Part::kBias, "expert_up_bias"},
    {Role::kExpertDownBias, Scope::kExpert, Part::kBias, "expert_down_bias"},
}};

constexpr bool in_order_of_the_enum() {
  for (std::size_t row = 0; row < kRoles.size(); ++row) {
    if (static_cast<std::size_t>(kRoles[row].role) != row) return false;
  }
  return true;
}
static_assert(in_order_of_the_enum());

}  // namespace

const RoleInfo& info(Role role) noexcept {
  const auto row = static_cast<std::size_t>(role);
  LODE_CHECK(row < kNumRoles, "no such role");
  return kRoles[row];
}

std::string_view name(Role role) noexcept { return info(role).name; }

Scope scope(Role role) noexcept { return info(role).scope; }

bool is_matrix(Role role) noexcept { return info(role).part == Part::kMatrix; }

}  // namespace lode::families
