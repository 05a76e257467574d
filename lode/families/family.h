#pragma once

#include <span>
#include <string_view>

#include "lode/base/result.h"
#include "lode/checkpoint/hf_config.h"
#include "lode/families/model_spec.h"
#include "lode/families/roles.h"

namespace lode::families {

/// The name of a module in the files, "{layer}" and "{expert}" standing for numbers, without
/// ".weight" or ".bias" (storage variants hang their own endings on it) and without "model." before
/// "layers" and the like (wrappers put other prefixes there).
struct ModulePattern {
  Role role;
  std::string_view module;
};

/// How stacked expert tensors [E, ., .] of this family are ordered where shapes cannot tell.
struct StackedExperts {
  std::string_view
      gate_up;  // module of the fused tensor: "mlp.experts.gate_up_proj" under the layer
  std::string_view down;
  bool transposed = false;   // plain tensors are [E, in, out]
  bool interleaved = false;  // row 2j is gate j, row 2j+1 up j; else gate rows, then up rows
};

/// A model family is a value. Adding one adds a file with one of these and its test vectors.
/// Source: checkpoints_models 2.8 (names and orders), families (equations and defaults).
struct Family {
  std::string_view model_type;    // config.json
  std::string_view architecture;  // architectures[0]
  Result<ModelSpec> (*read_spec)(const checkpoint::HfConfig&);
  std::span<const ModulePattern> modules;
  StackedExperts stacked;
};

/// Every family that Lode knows, listed by hand.
std::span<const Family* const> all_families() noexcept;

/// Errors: kUnsupported naming the architecture and the ones that are known.
Result<const Family*> find_family(const checkpoint::HfConfig& config);

}  // namespace lode::families
