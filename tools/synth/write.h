#pragma once

#include <filesystem>
#include <optional>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "tools/synth/recipe.h"
#include "tools/synth/source.h"

namespace lode::synth {

/// What was written.
struct Written {
  std::uint64_t tensor_bytes = 0;
  std::uint64_t tensors = 0;
  double seconds = 0.0;
};

/// Writes the whole checkpoint into `folder`, on `threads` threads: shards, index, configs.
/// `base` is the config.json of the model that `source` reads, if it reads one.
///
/// Memory: a few images of one expert's matrices a thread.
/// Errors: kUsage for recipes that cannot be, kIo and kNoSpace, and what the source says.
Result<Written> write_checkpoint(const Recipe& recipe, const FloatSource& source,
                                 const std::filesystem::path& folder,
                                 const std::optional<json::Object>& base, unsigned threads);

}  // namespace lode::synth
