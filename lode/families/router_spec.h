#pragma once

#include <cstdint>

#include "lode/base/result.h"

namespace lode::families {

enum class Score : std::uint8_t {
  kSoftmax,       // over all experts, before the choice
  kSigmoid,       // of each logit
  kTopKSoftmax,   // choose on the logits, softmax over the chosen
  kSqrtSoftplus,  // sqrt(ln(1 + e^logit))
  kSparseMixer,   // two experts, each a softmax over the logits near it: families.md, phimoe
};

/// How a token's router logits become experts and weights. Every family is a setting of this value;
/// router_table.h names them.
/// Source: spec moe_runner_eplb 1.
struct RouterSpec {
  Score score = Score::kSoftmax;
  std::uint32_t num_experts = 0;
  std::uint32_t top_k = 0;
  bool selection_bias = false;         // a learned bias moves the choice, never the weight
  bool renormalise = false;            // divide the chosen weights by their norm, as below
  std::uint32_t num_groups = 1;        // experts in equal consecutive groups ...
  std::uint32_t top_k_groups = 1;      // ... of which this many may be chosen from
  float scaling = 1.0F;                // multiplies the weights last, never the sum of the outputs
  std::uint32_t num_zero_experts = 0;  // ids num_experts and above: the token itself, no weights
  bool weight_on_input = false;        // expert(weight * x) instead of weight * expert(x)
  bool expert_scale = false;           // a learned factor of each expert multiplies its weight
  double norm_power = 1.0;             // norm: (sum of weight^power)^(1/power)
  double norm_add = 0.0;               // added to the norm
  double norm_floor = 0.0;             // the least that is divided by; where not > 0, by 1
  double near = 0.01;                  // kSparseMixer: half of what is near, relative

  /// Logits of a row: experts, then zero experts.
  std::uint32_t num_choices() const noexcept { return num_experts + num_zero_experts; }
};

/// What no router may be: more experts a token than there are, groups that do not divide the
/// experts or hold too few, numbers that are not finite, settings that exclude each other.
///
/// Errors: kInvalidSource naming the key of config.json and its value.
Status check_router(const RouterSpec& spec);

}  // namespace lode::families
