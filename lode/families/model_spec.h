#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/families/roles.h"
#include "lode/families/router_spec.h"

namespace lode::families {

/// What the gate and up products of an MLP go through. Formulas: moe/activation.h.
enum class Activation : std::uint8_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kSwigluOai,
  kSiluClamped,  // clamps, then silu
  kSwigluStep,   // silu, then clamps
  kSitu,
  kPlainRelu2,  // not gated from here on: no up product
  kPlainSilu,
  kPlainGelu,
  kPlainGeluTanh,
};

enum class RopeKind : std::uint8_t { kNone, kDefault, kLinear, kYarn, kLlama3 };

/// Rotary positions, NeoX halves: the pair of feature i is i + rotary_dim/2.
struct RopeSpec {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  std::uint32_t rotary_dim = 0;
  double factor = 1.0;
  double original_max_positions = 0.0;
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  bool truncate = true;           // yarn: round the ramp's ends to whole features
  double attention_factor = 0.0;  // yarn: 0 means derived
  double mscale = 0.0;            // yarn: 0 means absent
  double mscale_all_dim = 0.0;    // yarn: 0 means absent
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3

  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct LayerSpec {
  bool moe = true;                  // routed experts, else one dense MLP
  std::uint32_t window_tokens = 0;  // keys a query sees, itself included; 0: all before it
};

/// One model as numbers: what a config of a known family says, every default filled in.
/// Source: checkpoints_models 3.1, families 1 and 2.
struct ModelSpec {
  std::string family;
  std::uint32_t num_layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t vocab = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate = 0;         // of dense MLPs
  std::uint32_t expert_intermediate = 0;  // of one routed expert
  std::uint32_t max_positions = 0;
  float norm_eps = 1e-6F;
  float attention_scale = 0.0F;  // head_dim^-0.5 unless the family says otherwise
  bool tied_embeddings = false;  // the head is the embedding matrix
  bool qk_norm = false;          // RMS norm of each query and key head before rope
  bool attention_bias = false;   // on query, key and value
  bool output_bias = false;      // on the attention output
  bool attention_sinks = false;  // one more logit a head in the softmax, without a value
  bool expert_bias = false;      // on gate, up and down of routed experts
  bool router_bias = false;      // added to the router's logits
  Activation activation = Activation::kSilu;
  float activation_alpha = 1.702F;  // kSwigluOai
  float activation_limit = 7.0F;    // kSwigluOai
  RopeSpec rope;
  RouterSpec router;
  std::vector<LayerSpec> layers;
};

/// Extents of a role's weight: [rows, k], or [rows] with k = 0 for a vector.
struct RoleExtents {
  std::uint64_t rows = 0;
  std::uint64_t k = 0;

  friend bool operator==(const RoleExtents&, const RoleExtents&) = default;
};
RoleExtents extents(const ModelSpec& spec, Role role) noexcept;

/// Whether the model has this role, in layer `layer` where it is one of a layer or an expert.
bool has_role(const ModelSpec& spec, Role role, std::uint32_t layer = 0) noexcept;

/// What no model may be, whichever the family: heads that do not divide, more experts a token than
/// there are, extents and products beyond what Lode reckons with.
///
/// Errors: kInvalidSource naming the key of config.json and its value.
Status check_spec(const ModelSpec& spec);

/// Bytes of keys and values that `tokens` tokens of one sequence take, windows counted as rings;
/// the largest number there is where 64 bits do not hold it.
std::uint64_t kv_cache_bytes(const ModelSpec& spec, std::uint64_t tokens,
                             std::uint32_t bytes_per_number);

}  // namespace lode::families
