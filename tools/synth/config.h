#pragma once

#include <filesystem>
#include <optional>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "tools/synth/plan.h"
#include "tools/synth/recipe.h"

namespace lode::synth {

/// `quantization_config` in the dialect of the format; none for plain BF16.
std::optional<json::Value> quantization_config(const Recipe& recipe, const Resolved& resolved);

/// Writes config.json, generation_config.json, hf_quant_config.json where ModelOpt has one, and
/// the index where there are several shards. `base` is the config of an existing model.
///
/// Errors: kIo or kNoSpace.
Status write_configs(const std::filesystem::path& folder, const Recipe& recipe,
                     const Resolved& resolved, const Plan& plan,
                     const std::optional<json::Object>& base);

}  // namespace lode::synth
