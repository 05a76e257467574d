#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lode::families {

/// What a weight does in the model: the only names that loader and model share.
/// Source: checkpoints_models 2.8, the union of what the families have.
enum class Role : std::uint8_t {
  // once a model
  kTokenEmbedding,  // [V, H]
  kFinalNorm,       // [H]
  kOutputHead,      // [V, H]; absent where tied
  // once a layer
  kAttentionNorm,        // [H]
  kQuery,                // [num_heads * D, H]
  kKey,                  // [num_kv_heads * D, H]
  kValue,                // [num_kv_heads * D, H]
  kAttentionOutput,      // [H, num_heads * D]
  kQueryBias,            // [num_heads * D]
  kKeyBias,              // [num_kv_heads * D]
  kValueBias,            // [num_kv_heads * D]
  kAttentionOutputBias,  // [H]
  kQueryNorm,            // [D]
  kKeyNorm,              // [D]
  kAttentionSinks,       // [num_heads]
  kMlpNorm,              // [H]
  kRouter,               // [E, H]
  kRouterBias,           // [E], part of the logits
  kRouterSelectionBias,  // [E], moves the choice only
  kMlpGate,              // [I, H] of a dense layer
  kMlpUp,                // [I, H]
  kMlpDown,              // [H, I]
  // once an expert
  kExpertGate,      // [I, H]
  kExpertUp,        // [I, H]
  kExpertDown,      // [H, I]
  kExpertGateBias,  // [I]
  kExpertUpBias,    // [I]
  kExpertDownBias,  // [H]
};
inline constexpr std::size_t kNumRoles = 28;

enum class Scope : std::uint8_t { kModel, kLayer, kExpert };

/// Which part of a module's tensors a role is: a matrix and the scales that belong to it, one
/// vector beside it, or a tensor that bears the module's name as it is.
enum class Part : std::uint8_t { kMatrix, kNormWeight, kBias, kBare };

/// One row a role, in the order of the enum.
struct RoleInfo {
  Role role;
  Scope scope;
  Part part;
  std::string_view name;  // "expert_gate", as in JSON and receipts
};

const RoleInfo& info(Role role) noexcept;

/// "expert_gate", as in JSON and receipts.
std::string_view name(Role role) noexcept;
Scope scope(Role role) noexcept;

/// Whether the role is a matrix; a vector else.
bool is_matrix(Role role) noexcept;

}  // namespace lode::families
