#pragma once

#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/hf_config.h"
#include "lode/families/model_spec.h"

namespace lode::families {

// What families read from a config in the same way. A family's own defaults stay in its file.

/// Source: checkpoints_models 3.1 (spellings of keys), transformers 5.23 (defaults).

/// The sizes that every config states and no default may replace: layers, hidden, vocabulary,
/// heads, positions, eps; `head_dim` is hidden / heads where it is absent. `layers` is filled with
/// that many default ones.
///
/// Errors: kInvalidSource naming the key that is missing, of the wrong kind or impossible.
Result<ModelSpec> read_sizes(const checkpoint::HfConfig& config, std::string_view family);

/// Number of experts and experts a token, under every spelling.
///
/// Errors: as read_sizes.
Status read_experts(const checkpoint::HfConfig& config, ModelSpec& spec);

/// `hidden_act` (default silu).
///
/// Errors: kUnsupported naming the activation.
Result<Activation> read_activation(const checkpoint::HfConfig& config);

/// Rotary settings, old form and new, one for all `layer_types`; checks them.
///
/// Errors: kUnsupported for a rope type that Lode does not compute and for settings that differ
/// between layer types; kInvalidSource naming the key of a number that cannot be meant.
Result<RopeSpec> read_rope(const checkpoint::HfConfig& config, const ModelSpec& spec,
                           double default_theta, std::vector<std::string_view> layer_types);

/// A float that must be finite and above zero.
///
/// Errors: kInvalidSource naming the key.
Result<float> read_positive(const checkpoint::HfConfig& config, std::string_view key,
                            double fallback);

}  // namespace lode::families
