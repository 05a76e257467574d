#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/hf_config.h"

namespace lode::checkpoint {

/// Rotary settings as the config states them; what is absent stays empty, the family or the rope
/// itself knows the default.
struct RopeConfig {
  std::string type = "default";  // "linear", "dynamic", "yarn", "llama3", "longrope", ...
  std::optional<double> theta;
  std::optional<double> partial_rotary_factor;
  std::optional<double> factor;
  std::optional<double> original_max_positions;
  std::optional<double> attention_factor;
  std::optional<double> beta_fast, beta_slow;
  std::optional<double> mscale, mscale_all_dim;
  std::optional<double> low_freq_factor, high_freq_factor;
  std::optional<double> alpha;
  bool truncate = true;
  std::vector<double> short_factor, long_factor;
};

/// Reads both forms: `rope_theta` with `rope_scaling {type | rope_type, ...}`, and
/// `rope_parameters`, which may hold one object for each layer type; `layer_type` picks it.
/// "su" becomes "longrope"; "mrope" is the default for text. Other types are kept as written.
///
/// Errors: kInvalidSource naming the JSON path of a value of the wrong kind.
Result<RopeConfig> read_rope(const HfConfig& config, std::string_view layer_type = "");

}  // namespace lode::checkpoint
