#pragma once

#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/memory/ledger.h"

namespace lode::engine {

/// Bytes by tag: {"weights": 1, "kv_cache": 0, ...}.
json::Value as_json(const memory::TagBytes& bytes);

/// The stages of a plan or of a run, in one form for both, so that the two can be compared as text:
/// [{"name", "held_bytes": {tag: n}, "peak_bytes": {tag: n}, "peak_total_bytes": n}, ...].
json::Value as_json(std::span<const memory::StageUse> stages);

/// The way back.
/// Errors: kInvalidSource naming the stage and the member that is missing or of another kind.
Result<std::vector<memory::StageUse>> stages_of(const json::Value& list);

}  // namespace lode::engine
